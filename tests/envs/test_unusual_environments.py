"""Environments of the user's own with unusual spaces or mistakes: they work, or one line says what is wrong."""

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
import toy_zoo
from gymnasium import spaces

from holdfast.config import load_settings
from holdfast.envs import World, make_world, python_env
from holdfast.envs.failures import BadMask
from holdfast.envs.spaces import ActionWriter, MaskReader
from holdfast.errors import HoldfastError, SettingsError
from holdfast.spec import WorldSpec
from holdfast.trainer import train


class Counter(gymnasium.Env):
    """Episodes of five steps. `step` and `reset` return what the test gives them."""

    def __init__(self, obs: Any = None, actions: Any = None, seen: Any = 0, step: tuple = (), reset: Any = None):
        self.observation_space = obs or spaces.Discrete(5)
        self.action_space = actions or spaces.Discrete(2)
        self._seen, self._step, self._reset, self._t = seen, step, reset, 0

    def reset(self, *, seed=None, options=None):
        self._t = 0
        return (self._seen, {}) if self._reset is None else self._reset

    def step(self, action):
        self._t += 1
        return self._step or (self._seen, 1.0, self._t >= 5, False, {})


def describe(**options: Any) -> WorldSpec:
    return python_env(Counter, kwargs=options, num_envs=2).describe()


def build(source: Any) -> World:
    """Describe the world, as a run does first, and build it."""
    env = python_env(source, num_envs=2)
    env.describe()
    return make_world(env)


class RaisingSpace(Counter):
    observation_space = property(lambda self: 1 / 0, lambda self, value: None)  # type: ignore[assignment]


class Leaves(BaseException):
    """Not an Exception."""


def leave() -> None:
    raise Leaves("gone")


ONE = Counter()


@pytest.mark.parametrize(
    ("source", "facts"),
    [
        (lambda: ONE, ["same object twice"]),
        (RaisingSpace, ["spaces", "ZeroDivisionError"]),
        (leave, ["Leaves", "gone"]),
        (lambda: Counter(step=(0, 1.0, False, {})), ["4 values", "terminated, truncated, info"]),
        (lambda: Counter(reset=np.zeros(3)), ["ndarray", "obs, info"]),
        (lambda: Counter(step=(0, 1.0, "False", False, {})), ["'False'", "two bools"]),
        (lambda: Counter(step=(0, "1.5", False, False, {})), ["'1.5'", "number"]),
        (lambda: Counter(spaces.Discrete(300, start=5), seen=np.uint8(0)), ["outside its space"]),
    ],
)
def test_a_mistake_is_one_clear_line_before_a_run_begins(source, facts):
    with pytest.raises(SettingsError) as error:
        build(source)
    assert all(fact in str(error.value) for fact in facts), str(error.value)


def test_small_integers_and_negative_starts():
    describe(obs=spaces.Discrete(5, start=-1), seen=np.uint8(3))
    describe(obs=spaces.MultiDiscrete([3, 4], dtype=np.uint64), seen=np.array([2, 3], np.uint64))


def test_unbounded_actions_are_saved(tmp_path):
    words = [
        "env.num_envs=2",
        "trainer.horizon=8",
        "trainer.total_timesteps=32",
        "progress=off",
        f"runs_dir={tmp_path}",
    ]
    env = python_env(lambda: Counter(actions=spaces.Box(-np.inf, np.inf, (2,))), num_envs=2)
    settings = load_settings(["env=gym:Pendulum-v1", *words]).model_copy(update={"env": env})
    assert list((train(settings).run / "checkpoints").iterdir())


def test_environments_with_other_agents_are_refused():
    counts = itertools.cycle([2, 3])
    with pytest.raises(SettingsError, match="different agents"):
        make_world(python_env(lambda: toy_zoo.parallel_env(leave=(2,) * next(counts)), num_envs=2))


def test_a_nested_mask_must_fit_entry_by_entry():
    space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(3))
    reader = MaskReader(space, ActionWriter(space, "world", 0).sizes)
    out = np.zeros(5, bool)
    reader.read(None, {"action_mask": {"a": [1, 0], "b": [0, 1, 1]}}, out)
    assert out.tolist() == [True, False, False, True, True]
    with pytest.raises(BadMask, match=r"'a'.*3 values.*2"):
        reader.read(None, {"action_mask": {"a": [1, 0, 1], "b": [0, 1]}}, out)
    with pytest.raises(BadMask, match="no info"):
        reader.read(None, None, out)  # type: ignore[arg-type]


def test_a_ready_object_is_not_evaluated_while_it_trains(tmp_path):
    settings = load_settings(["env=gym:CartPole-v1", "eval.interval=1", f"runs_dir={tmp_path}", "progress=off"])
    with pytest.raises(SettingsError, match=r"eval\.interval=1.*ready object"):
        train(settings.model_copy(update={"env": python_env(Counter())}))
    assert not list(tmp_path.iterdir())


def test_a_space_of_an_agent_that_changes_is_a_failure():
    class Shifting(toy_zoo.Party):
        def action_space(self, agent: str) -> spaces.Space:
            return spaces.Discrete(3 if self.episode < 1 else 4)

    with make_world(python_env(Shifting, num_envs=1)) as world:
        world.reset(seed=0)
        with pytest.raises(HoldfastError, match=r"Discrete\(4\)"):
            world.reset(seed=1)
