"""Real processes, real signals: a failed worker is replaced, and nothing else in the world notices."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from toy_gym import FAULTS
from toy_masks import legal
from toy_processes import comes_true, gone, pids, run_parent

from holdfast.config.sections import EnvSection
from holdfast.envs import CollectEnv, GymEnv, ReplayPoint, World, episode_seed, make_world, workers
from holdfast.envs.workers import WorkerWorld
from holdfast.errors import HoldfastError, NonFiniteError

pytestmark = pytest.mark.slow

SEED = 5
TIMEOUT = 0.7
LOST = [2, 3]  # the slots of worker 1, which fails; worker 0 has 0 and 1
ROWS = ["obs", "episode", "action_mask", "rewards", "terminated", "truncated", "valid", "final_obs"]
BEGUN = ROWS[:3]  # what a row holds of an episode that has just begun


def frail(num_envs: int = 4, **kwargs: Any) -> GymEnv:
    return GymEnv(name="gym:toy_gym:Frail-v0", num_envs=num_envs, kwargs=kwargs)


def sound(settings: EnvSection) -> EnvSection:
    if isinstance(settings, GymEnv) and "Frail" in settings.name:
        return settings.model_copy(update={"kwargs": {"sound": True}})
    return settings


class Trial:
    """A world of two workers beside one in this process where nothing ever fails.

    `step` compares the rows of all slots. The slots of a failed worker must go on as those of a third world does
    that was told to begin their next episodes, and are compared with that one from then on.
    """

    def __init__(self, world: WorkerWorld, settings: EnvSection, told: list[str]):
        self.world, self.told = world, told
        self.settings = sound(settings)
        self.reference = make_world(self.settings)
        world.reset(seed=SEED)
        self.reference.reset(seed=SEED)
        self.renewed: World | None = None

    def step(self, actions: Any = None, skipped: int = 0, failing: bool = False) -> dict[str, np.ndarray]:
        """All rows after the step. failing: those of worker 1 must be lost; `skipped` more episodes, too."""
        acts = np.zeros(self.world.num_slots, int) if actions is None else np.asarray(actions)
        half = len(acts) // 2
        before = self.world.buffers.episode.copy()
        *_, info = self.world.step(acts)
        self.reference.step(acts)
        rows = {name: array.copy() for name, array in vars(self.world.buffers).items()}
        if failing:
            assert np.array_equal(info["lost"], np.arange(len(acts)) >= half)
            assert np.array_equal(rows["episode"][half:], before[half:] + 1 + skipped)
            self._renew(rows["episode"][half:])
            assert not rows["rewards"][half:].any()
            assert not rows["terminated"][half:].any()
            assert rows["truncated"][half:].all()
            assert not rows["valid"][half:].any()
        else:
            assert "lost" not in info
            if self.renewed is not None:
                self.renewed.step(acts[half:])
        for name in ROWS:
            assert np.array_equal(rows[name][:half], getattr(self.reference.buffers, name)[:half]), name
        if self.renewed is not None:
            for name in BEGUN if failing else ROWS[:-1]:
                assert np.array_equal(rows[name][half:], getattr(self.renewed.buffers, name)), name
        return rows

    def _renew(self, episodes: np.ndarray) -> None:
        """Of the environments of worker 1; their episodes and nothing else decide how they go on."""
        if self.renewed is None:
            ids = self.world.env_ids
            self.renewed = make_world(self.settings, env_ids=ids[len(ids) // 2 :])
        agents = self.world.world_spec.agents_per_env
        self.renewed.replay_to(
            ReplayPoint.at_episode_start(SEED, self.world.world_spec, episodes[::agents].copy(), self.world.steps)
        )


@pytest.fixture
def trial() -> Iterator[Callable[..., Trial]]:
    worlds: list[World] = []

    def make(settings: EnvSection | None = None, **more: Any) -> Trial:
        told: list[str] = []
        settings = settings or frail()
        world = make_world(settings, 2, **{"worker_timeout": 30, "on_failure": told.append, **more})
        worlds.append(world)
        assert isinstance(world, WorkerWorld)
        return Trial(world, settings, told)

    yield make
    for world in worlds:
        world.close()


def act(fault: str, slot: int = 3, num_slots: int = 4) -> np.ndarray:
    actions = np.zeros(num_slots, int)
    actions[slot] = FAULTS.index(fault)
    return actions


def kill(world: WorkerWorld, number: int = 1, how: signal.Signals = signal.SIGKILL) -> int:
    pid = pids(world)[number]
    os.kill(pid, how)
    return pid


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("exit", "exited with code 7."),
        ("rubbish", "exited with code 8."),
        (
            "raise",
            "failed: gym:toy_gym:Frail-v0: environment 3 (slot 3) raised ValueError: the physics exploded in step() at step 4.",
        ),
        (
            "reset",
            "failed: gym:toy_gym:Frail-v0: environment 3 (slot 3) raised KeyError: 'level 2' in reset() at step 4.",
        ),
        (
            "shape",
            "failed: gym:toy_gym:Frail-v0: environment 3 (slot 3) returned an observation of shape (1,)",
        ),
        ("SIGKILL", "was killed by SIGKILL"),
        ("SIGSTOP", "has not answered for 0.7 s."),
        ("hang", "has not answered for 0.7 s."),
    ],
    ids=lambda value: value.split()[0],
)
def test_a_failed_worker_is_replaced(trial: Callable[..., Trial], fault: str, words: str):
    """Both environments of worker 1 go on with their next episodes; worker 0 and its rows are as if nothing was."""
    t = trial(worker_timeout=TIMEOUT)
    for _ in range(3):
        t.step()
    first, second = pids(t.world)
    cut = t.world.buffers.episode[LOST]
    if fault.startswith("SIG"):
        kill(t.world, how=signal.Signals[fault])
        t.step(failing=True)
    else:
        t.step(act(fault), failing=True)
    assert pids(t.world)[0] == first
    assert gone([second], 0)
    assert len(t.told) == 1
    line, rest = t.told[0].split("\n")
    assert line.startswith(f"worker 1 with environments 2 to 3 (pid {second}) {words}")
    episodes = f"episodes {cut.min()} to {cut.max()}" if cut.min() < cut.max() else f"episode {cut.min()}"
    new = pids(t.world)[1]
    assert rest == f"Restarted as pid {new} (failure 1 of at most 3 in a row). Discarded: {episodes}."
    for _ in range(10):
        t.step()
    assert len(t.told) == 1


@pytest.mark.parametrize(("also_busy", "open_at"), [(True, "notice"), (False, "notice"), (True, "death")])
def test_a_death_is_noticed_while_another_worker_is_busy(
    trial: Callable[..., Trial], tmp_path: Path, also_busy: bool, open_at: str
):
    """Worker 0 is in a long step when worker 1, which has answered or is busy too, is killed.

    The step of worker 0 ends when the death is noticed, or at the death: then worker 1 comes back after the answer of
    worker 0 and is waited for.
    """
    gate, begun = tmp_path / "gate", tmp_path / "gate.begun"
    t = trial(frail(gate=str(gate)))

    def open_gate(text: str) -> None:
        t.told.append(text)
        gate.touch()

    if open_at == "notice":
        t.world._on_failure = open_gate

    def kill_in_step() -> None:
        if not comes_true(begun.exists, 60):
            return
        kill(t.world)
        if open_at == "death":
            gate.touch()

    killer = threading.Thread(target=kill_in_step)
    killer.start()
    t.step(act("slow", 0) + (act("slow", 3) if also_busy else 0), failing=True)
    killer.join()
    [told] = t.told
    assert "was killed by SIGKILL" in told
    t.step()


def test_a_worker_that_cannot_be_built_again_is_tried_again(trial: Callable[..., Trial], tmp_path: Path):
    note = tmp_path / "note"
    t = trial(frail(note=str(note)), worker_failures=3)
    t.step()
    note.write_text("2")
    kill(t.world)
    t.step(failing=True)
    assert len(t.told) == 3
    for told in t.told[1:]:
        assert re.search(r"worker 1 .* failed: env=gym:\S+: creating the environment failed", told)
    assert note.read_text() == "0"
    t.step()

    note.write_text("99")
    kill(t.world)
    with pytest.raises(HoldfastError) as caught:
        t.world.step(np.zeros(4, int))
    assert type(caught.value) is HoldfastError, "a wrong setting would say that nothing has begun"
    assert "the licence server is down" in str(caught.value)
    assert "In worker 1 with environments 2 to 3" in str(caught.value)


def test_an_episode_that_has_no_beginning_is_left_out(trial: Callable[..., Trial]):
    """Episode 1 of environment 3 cannot be started, however often it is tried."""
    t = trial(frail(unlucky=(episode_seed(SEED, 3, 1),)))
    kill(t.world)
    t.step(failing=True, skipped=1)
    assert [re.findall(r"Discarded: (.*)\.", told) for told in t.told] == [["episode 0"], ["episode 1"]]
    t.step()


@pytest.mark.slow
def test_twenty_failures_leave_nothing_behind(trial: Callable[..., Trial]):
    """Of every kind, one after the other, with an episode that ends regularly in between."""
    t = trial(worker_timeout=TIMEOUT, worker_failures=1)
    me = psutil.Process()
    t.step(act("exit"), failing=True)  # whatever is opened once is open now
    files, children, threads = me.num_fds(), len(me.children()), threading.active_count()
    kinds = ["exit", "raise", "reset", "rubbish", "shape", "SIGKILL", "SIGKILL", "exit", "raise", "SIGSTOP"]
    for number in range(20):
        ended = False
        while not ended:
            rows = t.step()
            ended = bool((rows["terminated"] | rows["truncated"])[LOST].any())
        kind = kinds[number % len(kinds)]
        if kind.startswith("SIG"):
            kill(t.world, how=signal.Signals[kind])
        t.step(None if kind.startswith("SIG") else act(kind, 2 + number % 2), failing=True)
        assert len(t.told) == number + 2
        assert "failure 1 of at most 1" in t.told[-1]
    assert me.num_fds() == files
    assert len(me.children()) == children
    assert not [child for child in me.children() if child.status() == "zombie"]
    assert threading.active_count() == threads


def test_too_many_failures_in_a_row_stop_the_run_with_the_traceback(trial: Callable[..., Trial]):
    """Worker 0 has failed too, which is another row, and that it is 50 episodes ahead does not help worker 1."""
    t = trial(worker_failures=3)
    world = t.world
    world.replay_to(ReplayPoint.at_episode_start(SEED, world.world_spec, np.array([50, 50, 0, 0])))
    world.step(act("raise") + act("raise", 0))
    for _ in range(2):
        world.step(act("raise"))
    assert len(t.told) == 4
    assert list(world.buffers.episode[LOST]) == [3, 3]
    with pytest.raises(HoldfastError) as caught:
        world.step(act("raise"))
    assert "environment 3 (slot 3) raised ValueError: the physics exploded in step() at step 4." in str(caught.value)
    assert "In worker 1 with environments 2 to 3:\n" in str(caught.value)
    assert 'raise ValueError("the physics exploded")\nValueError: the physics exploded' in str(caught.value)
    assert len(t.told) == 4
    with pytest.raises(HoldfastError, match="this world is closed"):
        world.step(np.zeros(4, int))


def test_nan_stops_the_run_at_once(trial: Callable[..., Trial]):
    t = trial()
    with pytest.raises(NonFiniteError, match=r"observation of slot 3 \(environment 3, agent 0\) is nan at step 1"):
        t.world.step(act("nan"))
    assert t.told == []


def test_a_failure_before_the_first_step_is_raised(trial: Callable[..., Trial]):
    with pytest.raises(HoldfastError, match=r"raised KeyError: 'level 2' in reset\(\) at step 0"):
        trial(frail(unlucky=(episode_seed(SEED, 3, 0),)))


@pytest.mark.slow
def test_a_worker_that_hangs_while_it_comes_back_is_replaced_too(
    trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workers, "BUILDING_SECONDS", 2.0)
    t = trial(worker_timeout=TIMEOUT)

    def stop_the_first(text: str) -> None:
        t.told.append(text)
        if len(t.told) == 1:
            kill(t.world, how=signal.SIGSTOP)

    t.world._on_failure = stop_the_first
    t.step(act("exit"), failing=True)
    assert "has not answered for 4 s" in t.told[1]
    assert len(t.told) == 2
    t.step()


def test_masks_are_those_of_the_new_episode():
    settings = GymEnv(name="gym:toy_masks:Gate-v0", num_envs=2, action_mask=True)
    told: list[str] = []
    with make_world(settings, 2, on_failure=told.append) as world:
        assert isinstance(world, WorkerWorld)
        _, info = world.reset(seed=0)
        for number in range(8):
            if number == 1:
                kill(world)
            obs, _, _, _, info = world.step(info["action_mask"].argmax(-1))
            assert np.array_equal(info["action_mask"], legal(obs))
            assert ("lost" in info) == (number == 1)
    assert len(told) == 1


@pytest.mark.slow
def test_flags_of_a_lost_row_last_one_step(trial: Callable[..., Trial]):
    """MettaGrid writes flags only where an episode ends."""
    t = trial(CollectEnv(num_envs=2, agents=2, max_steps=6, desync=True))
    for number in range(16):
        if number == 3:
            kill(t.world)
        t.step(failing=number == 3)


@pytest.mark.slow
def test_a_restarted_worker_leaves_signals_to_its_parent_and_leaves_with_it(trial: Callable[..., Trial]):
    t = trial()
    kill(t.world)
    t.step(failing=True)
    kill(t.world, how=signal.SIGINT)
    kill(t.world, how=signal.SIGTERM)
    for _ in range(10):
        t.step()
    parent, restarted = run_parent("restarted")
    assert len(restarted) == 2
    parent.kill()
    _, errors = parent.communicate()
    assert errors.count("you killed it).\nRestarted as pid ") == 2
    assert gone(restarted, 5)


@pytest.mark.slow
def test_time_in_which_the_program_was_stopped_is_not_held_against_workers():
    """Ctrl-Z stops the whole group; a step may take 0.5 s here."""
    parent, pids = run_parent("impatient")
    try:
        time.sleep(0.3)
        group = [*pids, parent.pid]
        for pid in group:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5)
        for pid in reversed(group):
            os.kill(pid, signal.SIGCONT)
        time.sleep(1)
        assert comes_true(lambda: all(psutil.pid_exists(pid) for pid in group), 0)
    finally:
        parent.kill()
    _, errors = parent.communicate()
    assert errors == ""
