"""Vector environments of every reset mode tell the same story as one environment per slot."""

from typing import Any

import numpy as np
import pytest
import toy_gym
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from toy_play import play

from holdfast.envs import GymEnv, GymVectorEnv, make_world
from holdfast.envs.vector_world import VectorWorld
from holdfast.errors import HoldfastError, NonFiniteError, SettingsError
from holdfast.spec import BoxObs

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def sync(kind: type, mode: AutoresetMode, num_envs: int = 3, **kwargs: Any) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: kind(**kwargs)] * num_envs, copy=False, autoreset_mode=mode)


def valid_transitions(got: dict[str, np.ndarray], slot: int, count: int) -> list[Any]:
    """The first `count` valid transitions of a slot: seen, done, got, and the last observation at ends."""
    rows = np.flatnonzero(got["valid"][:, slot])[:count]
    assert len(rows) == count
    names = ("before", "actions", "rewards", "terminated", "truncated", "final_obs")
    return [got[name][rows, slot].tolist() for name in names]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_transitions_of_single_environments(mode: AutoresetMode):
    single = play(make_world(GymEnv(name="gym:toy_gym:Count-v0", num_envs=3)), 60)
    got = play(VectorWorld(sync(toy_gym.Count, mode, reuse=False), "toy"), 120)
    for slot in range(3):
        assert valid_transitions(got, slot, 60) == valid_transitions(single, slot, 60)
    assert single["terminated"].any(0).all()
    assert single["truncated"].any(0).all()


@pytest.mark.parametrize("mode", MODES)
def test_every_valid_row_after_an_end_is_a_first_observation(mode: AutoresetMode):
    got = play(VectorWorld(sync(toy_gym.Count, mode), "toy"), 100)
    first = np.vstack([np.ones((1, 3), bool), (got["terminated"] | got["truncated"])[:-1]])
    opens = got["before"][..., 1] == 0  # Count shows its step
    valid = got["valid"]
    assert np.array_equal(first[valid], opens[valid])
    assert valid.all() == (mode is not AutoresetMode.NEXT_STEP)


def test_next_step_junk_rows():
    """The row after an end: not valid, no reward, arrives as truncated; so the row after it is a first."""
    world = VectorWorld(sync(toy_gym.Count, AutoresetMode.NEXT_STEP, num_envs=2), "toy")
    world.reset(seed=0)
    world.step(np.array([2, 0]))

    obs, rewards, terminated, truncated, info = world.step(np.array([2, 0]))
    assert terminated.tolist() == [True, False]
    assert info["valid"].tolist() == [True, True]
    assert rewards.tolist() == [22, 20]
    assert info["final_obs"][0].tolist() == [0, 2, 4]

    obs, rewards, terminated, truncated, info = world.step(np.array([2, 1]))
    assert info["valid"].tolist() == [False, True]
    assert rewards.tolist() == [0, 31]
    assert terminated.tolist() == [False, False]
    assert truncated.tolist() == [True, False]
    assert obs.tolist() == [[1, 0, 0], [0, 3, 1]]

    obs, rewards, terminated, truncated, info = world.step(np.array([1, 0]))
    assert info["valid"].tolist() == [True, True]
    assert truncated.tolist() == [False, False]
    assert obs.tolist() == [[1, 1, 1], [0, 4, 1]]


@pytest.mark.parametrize("mode", MODES)
def test_environments_that_end_on_their_first_step(mode: AutoresetMode):
    got = play(VectorWorld(sync(toy_gym.OneStep, mode), "toy"), 20)
    assert got["terminated"][got["valid"]].all()
    assert (got["before"][got["valid"]] >= 0).all()
    assert (got["final_obs"][got["valid"]] == -1).all()
    assert got["valid"].sum() == (30 if mode is AutoresetMode.NEXT_STEP else 60)


def test_a_reset_in_the_middle_forgets_what_was_pending():
    world = VectorWorld(sync(toy_gym.OneStep, AutoresetMode.NEXT_STEP), "toy")
    first = play(world, 7)
    again = play(world, 7)
    assert first["valid"].tolist() == again["valid"].tolist() == [[True] * 3, [False] * 3] * 3 + [[True] * 3]


@pytest.mark.parametrize("mode", MODES)
def test_dict_observations_and_their_last_ones(mode: AutoresetMode):
    space = spaces.Dict({"b": spaces.Box(0, 1, (2,)), "a": spaces.Box(0, 1, ())})

    class Short(toy_gym.Mirror):
        def step(self, action: Any) -> Any:
            return {"a": np.float32(0.5), "b": np.array([0.25, 0.75], np.float32)}, 0.0, False, True, {}

    world = VectorWorld(sync(Short, mode, action_space=spaces.Discrete(2), observation_space=space), "toy")
    got = play(world, 6)
    assert (got["final_obs"][got["valid"]] == [0.5, 0.25, 0.75]).all()
    assert not (got["before"][got["valid"]] == [0.5, 0.25, 0.75]).all(-1).any()


def test_native_cartpole_matches_its_own_batch():
    settings = GymVectorEnv(name="gymvec:CartPole-v1", num_envs=5, hide=[1, 3])
    with make_world(settings) as world:
        assert world.world_spec.obs == BoxObs((2,), "float32")
        got, again = play(world, 120), play(world, 120)
    assert all(np.array_equal(got[name], again[name]) for name in got)
    ended = got["terminated"] & got["valid"]
    assert ended.any(0).all()
    assert np.array_equal(~got["valid"][1:], ended[:-1])
    assert (np.abs(got["before"][1:][~got["valid"][:-1]]) <= 0.05).all()  # CartPole starts within 0.05 of the middle
    assert (np.abs(got["final_obs"][ended]).max(-1) > 0.2).all()  # and ends at 0.2095 rad or 2.4


def test_a_vector_environment_has_to_say_when_it_resets():
    envs = sync(toy_gym.Count, AutoresetMode.SAME_STEP)
    envs.metadata = {}
    with pytest.raises(SettingsError, match=r"toy: metadata\['autoreset_mode'\] is None"):
        VectorWorld(envs, "toy")


def test_same_step_without_final_obs_is_told():
    class Forgetful(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            *rest, _ = super().step(actions)
            return (*rest, {})

    world = VectorWorld(Forgetful([toy_gym.OneStep], autoreset_mode=AutoresetMode.SAME_STEP), "toy")
    world.reset(seed=0)
    with pytest.raises(HoldfastError, match=r"toy: environment 0 returned no info\['final_obs'\]"):
        world.step(np.array([0]))


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("raise", HoldfastError, "environments 0 to 1 raised ValueError: the physics exploded in step()"),
        ("nan", NonFiniteError, "observation of slot 1"),
    ],
)
def test_faults_are_told(fault: str, kind: type[Exception], words: str):
    world = VectorWorld(sync(toy_gym.Odd, AutoresetMode.NEXT_STEP, num_envs=2, fault=fault), "toy")
    world.reset(seed=0)
    with pytest.raises(kind) as caught:
        world.step(np.array([0, 3]))
    assert words in str(caught.value)


class Wrong(VectorEnv):
    """Returns rewards that would broadcast."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    num_envs = 2
    single_observation_space = spaces.Box(-1, 1, (1,))
    single_action_space = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        return np.zeros((2, 1), np.float32), np.zeros(1), np.zeros(2, bool), np.zeros(2, bool), {}


def test_a_batch_of_the_wrong_size_is_told():
    world = VectorWorld(Wrong(), "toy")
    world.reset(seed=0)
    with pytest.raises(HoldfastError, match=r"shape \(1,\), expected \(2,\)"):
        world.step(np.array([0, 0]))


def test_closing_closes_the_vector_environment():
    envs = sync(toy_gym.Count, AutoresetMode.SAME_STEP)
    with VectorWorld(envs, "toy"):
        pass
    assert envs.closed
