"""What environments report in `info` at the end of an episode: which numbers are taken, from every kind of world."""

from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
import pytest
import toy_zoo
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics

from holdfast.envs import GymEnv, PettingZooEnv, World, make_world
from holdfast.envs.episode_info import MAX_LENGTH, MAX_NAMES, numbers_in, row_of
from holdfast.envs.vector_world import VectorWorld
from support.telling import Telling

TELLING = GymEnv(name="gym:support.telling:Telling-v0", num_envs=3)
NAMES = ["episode/l", "episode/r", "parts/first", "score", "success"]


def test_numbers_of_any_type_are_taken_and_nothing_else():
    info = {
        "b": True,
        "i": 3,
        "f": 0.5,
        "np": np.int16(-2),
        "np bool": np.bool_(False),
        "0-d": np.array(7.0),
        "nan": float("nan"),
        "inf": np.float32("inf"),
        "huge": 10**400,
        "complex": 1j,
        "text": "1",
        "date": np.datetime64("2020-01-01"),
        "none": None,
        "fraction": Fraction(1, 2),
        "list": [1.0],
        "array": np.ones(1),
        "nested": {"x": 1, 2: 3, "deep": {"y": 1}},
        5: 5,
        "": 1,
        "TimeLimit.truncated": True,
        "episode": {"r": 9.0, "l": 4, "t": 0.123},
    }
    expected = {"b": 1.0, "i": 3.0, "f": 0.5, "np": -2.0, "np bool": 0.0, "0-d": 7.0, "nested/x": 1.0}
    assert numbers_in(info) == expected | {"episode/r": 9.0, "episode/l": 4.0}
    assert all(type(value) is float for value in numbers_in(info).values())
    for nothing in (None, {}, [], 3, "text"):
        assert numbers_in(nothing) == {}


def test_names_are_printable_short_and_few():
    (name,) = numbers_in({"a\x1b[31m\nb": 1})
    assert name.isprintable()
    (name,) = numbers_in({"x" * 1000: 1})
    assert len(name) <= MAX_LENGTH
    assert [*numbers_in({f"n{i:03}": i for i in reversed(range(200))})] == [f"n{i:03}" for i in range(MAX_NAMES + 1)]


def ends(world: World, steps: int = 40) -> list[tuple[int, int, dict[str, float]]]:
    """Play with action 0; return (step, slot, numbers) for everything reported, and check that only ends report."""
    world.reset(seed=3)
    found = []
    for step in range(steps):
        *_, terminated, truncated, info = world.step(np.zeros_like(world.buffers.actions))
        ended = np.flatnonzero((terminated | truncated) & info["valid"]).tolist()
        assert [slot for slot, _ in world.episode_infos] == ended
        found += [(step, slot, numbers) for slot, numbers in world.episode_infos]
    assert len(found) > 5
    return found


def test_the_info_of_the_last_step_counts():
    with make_world(TELLING) as world:
        for _, _, numbers in ends(world):
            assert sorted(numbers) == NAMES
            assert 0 <= numbers["score"] <= 1  # -1 in all other steps
            assert numbers["parts/first"] == numbers["episode/l"]
        world.reset(seed=0)
        assert world.episode_infos == []


def test_workers_report_the_same():
    with make_world(TELLING) as world:
        alone = ends(world)
    with make_world(TELLING, num_workers=2) as world:
        assert ends(world) == alone


MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def vector(mode: AutoresetMode) -> VectorWorld:
    return VectorWorld(SyncVectorEnv([Telling] * 3, autoreset_mode=mode), "toy")


@pytest.mark.parametrize("mode", MODES)
def test_vector_environments_report_the_end_and_not_the_reset(mode: AutoresetMode):
    for _, _, numbers in ends(vector(mode)):
        assert sorted(numbers) == NAMES
        assert 0 <= numbers["score"] <= 1
        assert numbers["parts/first"] == numbers["episode/l"] >= 3


def test_the_statistics_wrapper_of_gymnasium():
    made = SyncVectorEnv(
        [lambda: RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))] * 2, autoreset_mode=AutoresetMode.SAME_STEP
    )
    for _, _, numbers in ends(VectorWorld(made, "toy")):
        assert sorted(numbers) == ["episode/l", "episode/r"]
        assert numbers["episode/l"] == numbers["episode/r"]


def test_rows_of_vector_infos():
    info = {
        "x": np.array([1, 2]),
        "_x": np.array([True, False]),
        "plain": np.array([3, 4]),
        "odd": 7,
        "short": np.ones(1),
    }
    assert row_of(info, 0) == {"x": 1, "plain": 3, "short": 1.0}
    assert row_of(info, 1) == {"plain": 4}
    old = {"final_info": np.array([{"x": 1}, None], dtype=object)}
    assert row_of(old, 0)["final_info"] == {"x": 1}
    assert row_of(None, 0) == {}


def test_agents_report_when_they_leave(monkeypatch: pytest.MonkeyPatch):
    step = toy_zoo.Party.step

    def telling(self: Any, actions: dict[str, Any]) -> Any:
        *rest, infos = step(self, actions)
        return *rest, {agent: {"t": self.t, "own": toy_zoo.NAMES.index(agent)} for agent in infos}

    monkeypatch.setattr(toy_zoo.Party, "step", telling)
    with make_world(PettingZooEnv(name="pettingzoo:toy_zoo", num_envs=2)) as world:
        for _, slot, numbers in ends(world):  # agents leave in steps 2, 4 and 3
            assert numbers == {"own": slot % 3, "t": (2, 4, 3)[slot % 3]}


def test_a_vector_environment_without_final_info_reports_nothing():
    class Bare(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            *rest, info = super().step(actions)
            return *rest, {name: values for name, values in info.items() if "final_info" not in name}

    made: VectorEnv = Bare([Telling] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    world = VectorWorld(made, "toy")
    world.reset(seed=0)
    for _ in range(20):
        world.step(np.zeros_like(world.buffers.actions))
        assert world.episode_infos == []
