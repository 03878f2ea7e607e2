"""A killed run continues as if nothing happened: weights, optimiser, worlds and metrics are those of an untouched one.

`make kills` does it at fifty points of progress with SIGKILL; this is a sample of it, and every update of small runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from support.runs import CARTPOLE, REPOSITORY, SMALL_NET, TINY, digest, run, run_stopped

WORLDS = {
    "memory": ["settings=memory", *TINY, "env.num_envs=2", "env.rooms=2"],
    "cartpole": CARTPOLE,
    "box actions": ["env=gym:Pendulum-v1", *TINY, *SMALL_NET],
    "pettingzoo": [
        "env=pettingzoo:mpe2.simple_spread_v3",
        *TINY,
        *SMALL_NET,
        *("env.num_envs=2", "trainer.batch_size=48", "trainer.minibatch_size=24", "trainer.total_timesteps=192"),
    ],
    "workers": [*CARTPOLE, "trainer.num_workers=2", "trainer.total_timesteps=192"],
    "other rules": [
        *CARTPOLE,
        *("trainer.advantage=vtrace", "trainer.prioritized.alpha=0.5", "trainer.update_epochs=2"),
        *("trainer.burn_in=4", "trainer.weight_clip=2", "trainer.schedule.lr.kind=cosine", "policy.core=gru"),
        *("policy.memory_scope=lifetime", "trainer.l2_init=0.01"),
    ],
}


@pytest.mark.parametrize("world", [pytest.param(w, marks=pytest.mark.slow if w == "workers" else ()) for w in WORLDS])
def test_stopped_in_every_rollout_it_is_the_same_run(world: str, tmp_path: Path):
    """One process per update; the next one goes on. The checkpoint of every update is compared, not only the last."""
    words = WORLDS[world]
    untouched = run(words, tmp_path, "untouched")
    saved = list_checkpoints(untouched / "checkpoints")
    for _ in saved[:-1]:  # no interval is due: what is saved has waited while the next rollout was lived
        run_stopped([*words, "trainer.checkpoint_interval=0"], tmp_path, "stopped", after=1)
    stopped = run(words, tmp_path, "stopped")
    assert len(saved) >= 3
    for path in saved:
        one, other = load_checkpoint(path), load_checkpoint(stopped / "checkpoints" / path.name)
        for group, tensors in one.tensors.items():
            same = {name: x.equal(other.tensors[group][name]) for name, x in tensors.items()}
            assert all(same.values()), f"update {path.name}: {group} {[name for name in same if not same[name]]}"
    assert digest(stopped) == digest(untouched)
    facts = load_checkpoint(list_checkpoints(stopped / "checkpoints")[-1]).facts
    assert facts["exact"]
    assert facts["resumed"] == len(saved) - 1


def test_a_run_stopped_before_its_first_update_leaves_its_name_free(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    run_stopped(CARTPOLE, tmp_path, "stopped", after=0)
    assert not (tmp_path / "stopped").exists()
    assert "saved" not in caplog.text.replace("nothing was saved", "")
    assert digest(run(CARTPOLE, tmp_path, "stopped")) == digest(run(CARTPOLE, tmp_path, "untouched"))


@pytest.mark.slow
def test_sigkill_at_points_of_progress():
    command = [sys.executable, str(REPOSITORY / "proofs" / "kills.py"), "--points", "4", "cartpole", "memory"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 kills survived" in done.stdout
    assert done.stdout.count(": identical") == 4
