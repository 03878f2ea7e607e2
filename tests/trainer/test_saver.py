"""What the saver does with what was refused, with a disk that says no, and with a signal in the middle of it."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint import CheckpointError, list_checkpoints, load_checkpoint
from holdfast.errors import NonFiniteError
from holdfast.runs import read_metrics
from holdfast.trainer import saver
from holdfast.trainer.learner import Learner
from holdfast.trainer.signals import Stopped, StopSignals
from support.runs import CARTPOLE, digest, run, run_stopped

# Four updates, each saved.
WORDS = [*CARTPOLE, "trainer.keep.last=100"]


def damage(checkpoint: Path) -> bytes:
    file = checkpoint / "policy.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    return bytes(data)


def test_what_was_refused_makes_room_and_is_not_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It may be of a newer Holdfast, or on a disk that reads again tomorrow."""
    demo = run(WORDS, tmp_path, "demo")
    untouched = digest(demo)
    newest = list_checkpoints(demo / "checkpoints")[-1]
    for expected in ("00000004", "00000004-2"):
        data = damage(newest)
        assert digest(run(WORDS, tmp_path, "demo")) == untouched
        aside = demo / "refused" / expected
        assert (aside / "policy.safetensors").read_bytes() == data
        assert f"{newest}: moved to {aside}" in caplog.text
        assert "NOT SAVED" not in caplog.text
        caplog.clear()
    assert len([load_checkpoint(path) for path in list_checkpoints(demo / "checkpoints")]) == 4


def test_a_run_that_is_stopped_says_up_to_where_it_can_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Not up to the number of a checkpoint that nobody can use."""
    demo = run(WORDS, tmp_path, "demo")
    damage(list_checkpoints(demo / "checkpoints")[-1])
    run_stopped(WORDS, tmp_path, "demo", after=0)
    assert "The run is saved up to update 3;" in caplog.text


def test_a_run_that_an_error_ends_says_so_too(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """The world fails in step 23; an update is 16 steps."""
    faulty = [*WORDS, "env=gym:support.faulty:Faulty-v0", "env.hide=[]", "env.kwargs.field=reward"]
    with pytest.raises(NonFiniteError):
        run(faulty, tmp_path, "demo")
    assert "failed. The run is saved up to update 1; to resume it: holdfast train run=demo" in caplog.text


def test_a_checkpoint_that_cannot_be_removed_is_no_failed_save(tmp_path: Path, monkeypatch, caplog):
    def stuck(path: Path) -> None:
        raise CheckpointError(f"{path}: cannot be removed: device or resource busy")

    monkeypatch.setattr(saver, "remove_checkpoint", stuck)
    demo = run([*CARTPOLE, "trainer.keep.last=1", "trainer.keep.best=off"], tmp_path, "demo")
    assert "cannot be removed: device or resource busy" in caplog.text
    assert "NOT SAVED" not in caplog.text
    assert (demo / "summary.json").exists()


def test_a_signal_during_a_save_that_fails_is_obeyed_after_it(tmp_path: Path, monkeypatch, caplog):
    save, asked = saver.save_checkpoint, []

    def full(folder: Path, name: str, *rest: Any) -> Path:
        if name == "00000002" and not asked:
            asked.append(name)
            os.kill(os.getpid(), signal.SIGTERM)
            raise CheckpointError("no space left on device")
        return save(folder, name, *rest)

    monkeypatch.setattr(saver, "save_checkpoint", full)
    with pytest.raises(Stopped):
        run(WORDS, tmp_path, "demo")
    assert len(read_metrics(tmp_path / "demo")) == 2  # not one update later
    assert "saved up to update 2" in caplog.text  # there was room again


def test_a_held_signal_is_raised_once():
    signals = StopSignals()

    def interrupted_and_failed() -> None:
        with signals.held():
            os.kill(os.getpid(), signal.SIGINT)
            raise ZeroDivisionError

    with signals.listening():
        with pytest.raises(ZeroDivisionError):
            interrupted_and_failed()
        with pytest.raises(Stopped):
            signals.raise_if_asked()
        signals.raise_if_asked()


@pytest.mark.parametrize("parity", [float("inf"), float("nan")])
def test_a_parity_beyond_all_numbers_can_be_saved(parity: float, tmp_path: Path, monkeypatch):
    """Its gradient is not taken; the run goes on, and so do its checkpoints."""
    update = Learner.update

    def far_off(learner: Learner, *args: Any, **kwargs: Any) -> Any:
        learned = update(learner, *args, **kwargs)
        return replace(learned, parity=replace(learned.parity, max_log_ratio=parity))

    monkeypatch.setattr(Learner, "update", far_off)
    demo = run(WORDS, tmp_path, "demo")
    assert load_checkpoint(list_checkpoints(demo / "checkpoints")[-1]).facts["worst_parity"] > 1e300


def test_another_adam_eps_counts_from_where_the_run_goes_on(tmp_path: Path):
    run_stopped(WORDS, tmp_path, "changed", after=2)
    run_stopped(WORDS, tmp_path, "same", after=2)
    changed = run([*WORDS, "trainer.adam_eps=0.1"], tmp_path, "changed")
    assert digest(changed) != digest(run(WORDS, tmp_path, "same"))
    saved = load_checkpoint(list_checkpoints(changed / "checkpoints")[-1])
    assert "0.1" in str(saved.facts["optimizer"])
