"""Same seed, same run, to the last bit: in fresh processes, with any number of workers, on a busy machine."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.config import load_settings
from holdfast.runs import read_metrics
from holdfast.trainer import train
from support.commands import holdfast_process

pytestmark = pytest.mark.slow

TIMING = ("wall_s", "sps", "rss_mb", "share_world", "share_inference", "share_learning")
WORDS = ["env=gym:CartPole-v1", "env.num_envs=4", "policy.hidden=16", "trainer.total_timesteps=512"]
WORDS += ["trainer.update_epochs=2", "progress=off"]
Outcome = tuple[dict[str, str], list[str]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What a run with these words came to: a hash of every part of its last checkpoint, and its metrics. Each is run once."""
    folder, found = tmp_path_factory.mktemp("runs"), {}

    def outcome_of(name: str, *words: str, fresh: bool = False) -> Outcome:
        if name not in found:
            given = [*WORDS, *words, f"run={name}", f"runs_dir={folder}"]
            if fresh:
                process = holdfast_process("train", *given, cwd=folder)
                _, err = process.communicate(timeout=200)
                assert process.returncode == 0, err
            else:
                train(load_settings(given))
            found[name] = outcome(folder / name)
        return found[name]

    return outcome_of


def outcome(run: Path) -> Outcome:
    saved = load_checkpoint(list_checkpoints(run / "checkpoints")[-1])
    parts = {
        f"{group} {key}": hashlib.sha256(x.numpy().tobytes()).hexdigest()
        for group, members in saved.tensors.items()
        for key, x in members.items()
    }
    rows = [{key: value for key, value in row.items() if key not in TIMING} for row in read_metrics(run)]
    return parts, [json.dumps(row) for row in rows]


def test_fresh_processes_agree_and_another_seed_differs(trained):
    one = trained("one", "seed=5", fresh=True)
    assert one == trained("two", "seed=5", fresh=True) == trained("here", "seed=5")
    parts, rows = one
    assert len(rows) == 8
    weights = [key for key in parts if key.startswith("policy ") and ("weight" in key or "_l0" in key)]
    assert len(weights) > 4
    others, other_rows = trained("other", "seed=6")
    assert all(parts[key] != others[key] for key in weights if "bias" not in key)
    assert not set(rows) & set(other_rows)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_same_run(trained, workers):
    found = trained(f"workers{workers}", "seed=5", f"trainer.num_workers={workers}")
    assert found == trained("here", "seed=5")


def test_a_busy_machine_gives_the_same_run(trained):
    """Three busy loops beside it: whatever depends on who comes first would show."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        busy = trained("busy", "seed=5", "trainer.num_workers=2")
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert busy == trained("here", "seed=5")
