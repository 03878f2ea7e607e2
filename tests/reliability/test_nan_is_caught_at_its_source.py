"""NaN is caught at its source: a world's in the step that made it, the state before it saved; a gradient's before it is applied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.errors import HoldfastError, NonFiniteError
from holdfast.runs import read_metrics
from holdfast.trainer import learner
from support.runs import CARTPOLE, SMALL_NET, TINY, digest, run, run_stopped

# 16 steps of 4 environments per update: the fault in step 23 is in the second rollout, and no checkpoint is due.
FAULTY = ["env=gym:support.faulty:Faulty-v0", *TINY, *SMALL_NET, "trainer.checkpoint_interval=0"]


@pytest.mark.parametrize(
    ("field", "value", "workers"),
    [
        ("reward", "nan", 0),
        ("reward", "-inf", 0),
        ("observation", "nan", 0),
        ("observation", "inf", 0),
        pytest.param("observation", "nan", 2, marks=pytest.mark.slow),
        pytest.param("reward", "inf", 2, marks=pytest.mark.slow),
    ],
)
def test_a_world_that_makes_it_is_named_and_what_was_before_is_saved(
    field: str, value: str, workers: int, tmp_path: Path
):
    words = [*FAULTY, f"env.kwargs={{field: {field}, value: '{value}'}}", f"trainer.num_workers={workers}"]
    with pytest.raises(NonFiniteError) as caught:
        run(words, tmp_path, "demo")
    told = str(caught.value).splitlines()[0]
    slot = "slot 0 (environment 0, agent 0)"
    assert told == f"gym:support.faulty:Faulty-v0: {field} of {slot} is {value} at step 23."
    [path] = list_checkpoints(tmp_path / "demo" / "checkpoints")
    saved = load_checkpoint(path)
    assert saved.facts["update"] == len(read_metrics(tmp_path / "demo")) == 1
    alone = run([*FAULTY, "trainer.total_timesteps=64"], tmp_path, "sound")  # one update in a world without the fault
    sound = load_checkpoint(list_checkpoints(alone / "checkpoints")[-1])
    assert all(x.equal(sound.tensors["policy"][name]) for name, x in saved.tensors["policy"].items())


def spoil_gradients(monkeypatch: pytest.MonkeyPatch, which: range, value: float) -> None:
    """The gradients of these steps of the optimizer (counted over the run) are not finite."""
    step, count = learner.Learner._step, iter(range(10**6))

    def spoiled(self: Any) -> Any:
        if next(count) in which:
            for param in self.params.values():
                param.grad *= value
        return step(self)

    monkeypatch.setattr(learner.Learner, "_step", spoiled)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_not_applied(value: float, tmp_path: Path, monkeypatch, caplog):
    """Two gradient steps per update: the first of update 2 is spoiled, the rest goes on from weights that are finite."""
    with monkeypatch.context() as patch:
        spoil_gradients(patch, range(2, 3), value)
        done = run([*CARTPOLE, "progress=lines"], tmp_path, "demo")
    assert [row["skipped"] for row in read_metrics(done)] == [0, 1, 0, 0]
    saved = [load_checkpoint(path) for path in list_checkpoints(done / "checkpoints")]
    assert [s.facts["update"] for s in saved] == [1, 2, 3, 4]
    assert [float(s.tensors["optimizer"]["0.step"]) for s in saved] == [2, 3, 5, 7]
    [file] = (done / "skipped").iterdir()
    assert file.name == "00000002-0.safetensors"
    assert "update 2: skipped a gradient step with a non-finite gradient" in caplog.text
    assert f"its minibatch is in {file}" in caplog.text
    minibatch = safetensors.torch.load_file(file)
    assert minibatch["env_obs"].shape == (8, 4, 3)  # horizon, segments, entries that are not hidden
    assert {"actions", "act_log_prob", "values", "advantages", "valid", "start_state_0", "rewards"} <= minibatch.keys()
    assert all(x.isfinite().all() for x in minibatch.values() if x.is_floating_point())
    untouched = run(CARTPOLE, tmp_path, "untouched")
    first = load_checkpoint(list_checkpoints(untouched / "checkpoints")[0])
    assert all(x.equal(first.tensors["policy"][name]) for name, x in saved[0].tensors["policy"].items())
    assert digest(done)["policy"] != digest(untouched)["policy"]


def test_too_many_in_a_row_stop_the_run_with_every_minibatch_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From the second of update 2 on: one in update 2, and the third in a row is one too many in update 3."""
    spoil_gradients(monkeypatch, range(3, 100), float("nan"))
    with pytest.raises(HoldfastError, match="non-finite gradient 3 times in a row"):
        run([*CARTPOLE, "trainer.skipped_updates=2", "trainer.checkpoint_interval=0"], tmp_path, "demo")
    [path] = list_checkpoints(tmp_path / "demo" / "checkpoints")
    saved = load_checkpoint(path)
    assert saved.facts["update"] == 2
    assert all(x.isfinite().all() for x in saved.tensors["policy"].values() if x.is_floating_point())
    kept = sorted((tmp_path / "demo" / "skipped").iterdir())
    assert [file.name for file in kept] == [
        f"{name}.safetensors" for name in ("00000002-0", "00000003-0", "00000003-1")
    ]
    for file in kept:
        assert torch.is_tensor(safetensors.torch.load_file(file)["env_obs"])


def test_they_are_counted_across_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One at the end of update 2, then the run is stopped; resumed, the second of update 3 is the third in a row."""
    words = [*CARTPOLE, "trainer.skipped_updates=2"]
    with monkeypatch.context() as patch:
        spoil_gradients(patch, range(3, 4), float("nan"))
        run_stopped(words, tmp_path, "demo", after=2)
    spoil_gradients(monkeypatch, range(100), float("nan"))
    with pytest.raises(HoldfastError, match="non-finite gradient 3 times in a row"):
        run(words, tmp_path, "demo")
    assert len(read_metrics(tmp_path / "demo")) == 2
