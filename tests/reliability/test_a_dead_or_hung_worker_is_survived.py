"""A dead or hung worker is survived: the run goes on, no step of the cut episodes is trained on, their memory is cleared.

What a worker world does by itself is in tests/envs/test_worker_failures.py; here it is a whole training run, signalled from outside.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.envs.workers import WorkerWorld
from holdfast.errors import HoldfastError
from holdfast.rollout import Collector
from holdfast.runs import read_metrics
from holdfast.trainer import learner
from support.runs import SMALL_NET, TINY, gone, run, workers_of

# Two rollouts of 32 steps. All episodes have 10, so the one that is cut began with the answer to step 40.
WORDS = [
    "env=gym:support.faulty:Faulty-v0",
    *TINY,
    *SMALL_NET,
    *("trainer.batch_size=128", "trainer.minibatch_size=128", "trainer.num_workers=2", "trainer.worker_timeout=2"),
]
LOST = [2, 3]  # the slots of worker 1
STEP = 32 + 17  # of the run; it is never answered


class Signaller:
    """A thread that sends a signal to worker 1 before given steps of the run, which waits until it is sent."""

    def __init__(self, number: signal.Signals, steps: list[int]):
        self.number, self.steps = number, steps
        self.now, self.sent = threading.Event(), threading.Event()
        self.targets: list[psutil.Process] = []
        self.thread = threading.Thread(target=self._send, daemon=True)

    def _send(self) -> None:
        for _ in self.steps:
            self.now.wait()
            self.now.clear()
            worker = workers_of(os.getpid())[-1]  # the one that was started last: worker 1, also after a restart
            self.targets.append(worker)
            worker.send_signal(self.number)
            self.sent.set()

    def before_step(self, step: int) -> None:
        if step in self.steps:
            self.now.set()
            assert self.sent.wait(30)
            self.sent.clear()


def is_the_runs(world: WorkerWorld) -> bool:
    """Not the single environment in which it is looked whether episodes can be lived again."""
    return len(world.env_ids) == 4


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What a run does, as it does it: what the worlds showed, memory around a loss, and what was learned from."""
    seen: dict[str, list[Any]] = {"memory": [], "first": [], "valid": [], "obs": [], "sampled": [], "lost": []}
    step, drop = WorkerWorld.step, Collector._drop_lost
    update, minibatches = learner.Learner.update, learner.Experience.minibatches

    def stepped(self: WorkerWorld, actions: np.ndarray) -> Any:
        result = step(self, actions)
        if is_the_runs(self):
            seen["lost"].append(result[-1].get("lost", np.zeros(4, bool)).copy())
            seen["obs"].append(result[0].copy())
        return result

    def dropped(self: Collector, t: int, lost: np.ndarray, state: Any) -> Any:
        before = [leaf.clone() for leaf in self.policy.get_memory()]
        state = drop(self, t, lost, state)
        after = [leaf.clone() for leaf in self.policy.get_memory()]
        seen["memory"].append((before, after))
        return state

    def learned(self: Any, experiences: Any, progress: float) -> Any:
        whole = experiences[0].whole()
        seen["valid"].append(whole.valid.clone())
        seen["first"].append(whole.first.clone())
        return update(self, experiences, progress)

    def sampled(self: Any, all_ids: Any) -> Any:
        for ids, batch in zip(all_ids, minibatches(self, all_ids), strict=True):
            seen["sampled"].append((ids.clone(), batch.valid.clone()))
            yield batch

    monkeypatch.setattr(Collector, "_drop_lost", dropped)
    monkeypatch.setattr(WorkerWorld, "step", stepped)
    monkeypatch.setattr(learner.Learner, "update", learned)
    monkeypatch.setattr(learner.Experience, "minibatches", sampled)
    return seen


def run_signalled(
    number: signal.Signals, steps: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> tuple[Signaller, list[str]]:
    """The run, and what was said about workers."""
    signaller = Signaller(number, steps)
    step, count, told = WorkerWorld.step, iter(range(1, 10**6)), []

    def step_signalled(self: WorkerWorld, actions: np.ndarray) -> Any:
        if not is_the_runs(self):
            return step(self, actions)
        self._on_failure = lambda text: told.append(text)
        signaller.before_step(next(count))
        return step(self, actions)

    monkeypatch.setattr(WorkerWorld, "step", step_signalled)
    signaller.thread.start()
    run(words, tmp_path, "demo")
    signaller.thread.join(10)
    return signaller, told


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_run_goes_on_and_learns_nothing_of_the_cut_episodes(
    number: signal.Signals, watched: dict[str, list[Any]], tmp_path: Path, monkeypatch
):
    signaller, told = run_signalled(number, [STEP], tmp_path, monkeypatch, WORDS)
    demo = tmp_path / "demo"
    assert [row["update"] for row in read_metrics(demo)] == [1, 2]
    assert load_checkpoint(list_checkpoints(demo / "checkpoints")[-1]).facts["update"] == 2
    assert gone(signaller.targets, 0)
    [text] = told
    how = "was killed by SIGKILL" if number == signal.SIGKILL else "has not answered for 2 s"
    assert re.match(rf"worker 1 with environments 2 to 3 \(pid {signaller.targets[0].pid}\) {how}.*\.\n", text)

    row = STEP - 32 - 1  # of the second rollout, whose answer was lost
    lost = np.zeros((64, 4), bool)
    lost[STEP - 1, LOST] = True
    assert np.array_equal(np.stack(watched["lost"]), lost)
    expected = torch.ones(32, 4, dtype=torch.bool)
    expected[8 : row + 1, LOST] = False  # the episode began at row 8 of this rollout: step 40 ended the one before
    assert watched["valid"][0].all()
    assert watched["valid"][1].equal(expected)
    assert watched["first"][1][row + 1, LOST].all()
    ids, valid = watched["sampled"][-1]  # the minibatch is the whole second rollout, in segments of 8 steps
    assert sorted(ids.tolist()) == list(range(16))
    for column, (k, slot) in enumerate(divmod(segment, 4) for segment in ids.tolist()):
        assert valid[:, column].equal(expected[8 * k : 8 * (k + 1), slot])

    [(before, after)] = watched["memory"]
    for old, new in zip(before, after, strict=True):
        assert old[:, LOST].any()
        assert not new[:, LOST].any()
        assert new[:, :2].equal(old[:, :2])

    calm = tmp_path / "calm"
    monkeypatch.undo()
    shown: list[np.ndarray] = []
    step = WorkerWorld.step

    def stepped(self: WorkerWorld, actions: np.ndarray) -> Any:
        result = step(self, actions)
        if is_the_runs(self):
            shown.append(result[0].copy())
        return result

    monkeypatch.setattr(WorkerWorld, "step", stepped)
    run(WORDS, calm, "demo")
    assert np.array_equal(np.stack(shown)[:, :2], np.stack(watched["obs"])[:, :2])  # other slots: as if nothing was
    assert np.array_equal(np.stack(shown)[: STEP - 1, LOST], np.stack(watched["obs"])[: STEP - 1, LOST])
    assert not np.array_equal(np.stack(shown)[STEP - 1, LOST], np.stack(watched["obs"])[STEP - 1, LOST])


@pytest.mark.slow
def test_too_many_failures_in_a_row_end_the_run_and_what_was_learned_is_saved(tmp_path: Path, monkeypatch):
    words = [*WORDS, "trainer.worker_failures=1", "trainer.checkpoint_interval=0"]
    with pytest.raises(HoldfastError, match=r"worker 1 with environments 2 to 3 \(pid \d+\) was killed by SIGKILL"):
        run_signalled(signal.SIGKILL, [STEP, STEP + 2], tmp_path, monkeypatch, words)
    [path] = list_checkpoints(tmp_path / "demo" / "checkpoints")
    assert load_checkpoint(path).facts["update"] == 1
    assert workers_of(os.getpid()) == []
    monkeypatch.undo()
    run(words, tmp_path, "demo")
    assert len(read_metrics(tmp_path / "demo")) == 2
