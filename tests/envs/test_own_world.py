"""Worlds of the user's own environments: classes and functions in files, and the same objects from Python."""

import functools
import os
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import toy_aec
import toy_zoo
from toy_play import play

from holdfast.config import load_settings
from holdfast.envs import GymEnv, OwnEnv, World, make_world, python_env, why_not_replayable
from holdfast.errors import HoldfastError, SettingsError

CUE = """
import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from .helper import SIZE


class Cue(gymnasium.Env):
    def __init__(self, delay=3, leaves_at=0):
        self.observation_space = spaces.Box(-1, 1, (SIZE,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.delay = delay

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.cue = 0, int(self.np_random.integers(2))
        return self._obs(), {"action_mask": [1, 0]}

    def _obs(self):
        return np.eye(SIZE, dtype=np.float32)[self.cue] * (self.t == 0)

    def step(self, action):
        self.t += 1
        over = self.t >= self.delay
        return self._obs(), float(over and action == self.cue), over, False, {"action_mask": [0, 1]}


def make(delay=2):
    return gymnasium.wrappers.TimeLimit(Cue(delay), 100)


def many(num_envs, delay=2):
    return gymnasium.vector.SyncVectorEnv([lambda: Cue(delay)] * num_envs, autoreset_mode="SameStep")


class Many(gymnasium.vector.SyncVectorEnv):
    def __init__(self, num_envs, delay=2):
        super().__init__([lambda: Cue(delay)] * num_envs)


def ignores(num_envs):
    return many(3)


def single(num_envs):
    return Cue()


def forgets():
    return many(2)


ready = Cue()
"""
ZOO = """
from toy_aec import Pot
from toy_zoo import Party


def parallel(**kwargs):
    return Party(**kwargs)


def aec(**kwargs):
    return Pot(**kwargs)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("helper.py").write_text("SIZE = 2\n")
    Path("mine.py").write_text(CUE)
    Path("zoo.py").write_text(ZOO)
    return tmp_path


def own(name: str, **settings: Any) -> OwnEnv:
    return OwnEnv(name=name, **settings)


@pytest.mark.parametrize("name", ["./mine.py:Cue", "mine.py:make", "./mine.py:Many", "./mine.py:many"])
def test_a_class_or_a_function(name):
    spec = own(name).describe()
    assert spec.obs.shape == (2,)
    with make_world(own(name, num_envs=3, kwargs={"delay": 4})) as world:
        got = play(world, 4)
        assert world.num_slots == 3
        assert got["terminated"].tolist() == [[False] * 3] * 3 + [[True] * 3]


def test_the_same_steps_as_gym(monkeypatch):
    monkeypatch.syspath_prepend("")
    Path("registers.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.registration import register\n"
        "register('Own-v0', lambda: __import__('holdfast.user_code').user_code.load_file('mine.py', '').Cue())\n"
    )
    steps = [
        play(make_world(env), 7)
        for env in (own("mine.py:Cue", num_envs=2), GymEnv(name="gym:registers:Own-v0", num_envs=2))
    ]
    for key in steps[0]:
        assert np.array_equal(steps[0][key], steps[1][key]), key


def test_settings_of_the_world():
    with make_world(own("mine.py:Cue", num_envs=1, hide=[0], action_mask=True)) as world:
        _, info = world.reset(seed=0)
        assert world.world_spec.obs.shape == (1,)
        assert info["action_mask"].tolist() == [[True, False]]


def test_pettingzoo():
    with make_world(own("zoo.py:parallel", num_envs=2, kwargs={"leave": (2, 2)}, hide=[0, 1])) as world:
        assert world.num_slots == 4
        assert world.reset(seed=0)[0][:, 0].tolist() == [0, 1, 0, 1]
    with make_world(own("zoo.py:aec", num_envs=2)) as world:
        assert world.num_slots == 4
        assert world.reset(seed=0)[1]["action_mask"].sum(1).tolist() == [3, 1, 3, 1]


def test_vector_environments_have_one_generator():
    assert own("mine.py:many").single_generator
    assert not own("mine.py:make").single_generator
    with pytest.raises(SettingsError, match=r"num_workers=2 with env=mine.py:many.*\n.*makes one environment"):
        make_world(own("mine.py:many"), 2)


def test_workers_load_the_file_from_any_working_directory(folder, monkeypatch):
    """A worker that dies is restarted from the file, too."""
    Path("leaves.py").write_text(
        CUE + "import os\n\n\nclass Leaves(Cue):\n    def step(self, action):\n        os.chdir('/')\n"
        f"        if self.t == 1 and not os.path.exists({str(folder / 'died')!r}):\n"
        f"            open({str(folder / 'died')!r}, 'w')\n            os._exit(1)\n        return super().step(action)\n"
    )
    said: list[str] = []
    env = own("./leaves.py:Leaves", num_envs=1)
    monkeypatch.chdir("/")
    with make_world(env, 1, on_failure=said.append) as world:
        world.reset(seed=0)
        for _ in range(5):
            world.step(np.zeros(1, int))
        assert len(said) == 1
        assert world.buffers.episode[0] == 2


class TestFromPython:
    def test_classes_functions_and_lambdas(self):
        for source in (
            toy_zoo.Party,
            toy_zoo.parallel_env,
            functools.partial(toy_zoo.Party, silent=True),
            lambda: toy_zoo.Party(),
        ):
            with make_world(python_env(source, num_envs=2)) as world:
                assert world.num_slots == 6
        with make_world(python_env(toy_aec.Pot, num_envs=1, kwargs={"turns": (1, 1, 1)})) as world:
            assert world.num_slots == 3

    def test_its_name_is_the_word_for_the_command_line(self, folder):
        env = python_env(toy_zoo.Party)
        assert env.name == f"{toy_zoo.__file__}:Party"
        assert OwnEnv.model_validate(env.model_dump()).describe() == env.describe()
        assert python_env(lambda: None).name.endswith(".py:environment")

    def test_a_ready_object_is_one_environment_and_stays_open(self):
        class Closes(gymnasium.Wrapper):
            closed = False

            def close(self) -> None:
                self.closed = True

        ready = Closes(gymnasium.make("CartPole-v1"))
        env = python_env(ready)
        env.describe()
        play(make_world(env), 3)
        assert not ready.closed
        with pytest.raises(SettingsError, match=r"ready object with 1 environment.*env.num_envs=2"):
            make_world(python_env(ready, num_envs=2))
        assert "ready object" in str(why_not_replayable(env, in_a_worker=False, worker_timeout=1))

    def test_workers_need_something_picklable(self):
        with make_world(python_env(toy_zoo.Party, num_envs=2), 1) as world:
            assert world.reset(seed=0)[0].shape == (6, 4)
        with pytest.raises(SettingsError, match=r"cannot be sent to worker processes.*\n.*trainer.num_workers=0"):
            make_world(python_env(lambda: toy_zoo.Party(), num_envs=2), 1)

    @pytest.mark.parametrize("source", [None, 3, {}, "mine.py"])
    def test_something_else(self, source):
        with pytest.raises(SettingsError, match="not a class or function"):
            python_env(source)


BROKEN = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Good(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, True, False, {}


class NoSpace(gymnasium.Env):
    action_space = spaces.Discrete(2)


class NoneSpace(Good):
    action_space = None


class Raises(Good):
    def __init__(self, size=1):
        raise ValueError("no such size")


class Leaves(Good):
    def __init__(self):
        raise SystemExit(0)


class BadReset(Good):
    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}


class OldReset(Good):
    def reset(self):
        return np.zeros(2, np.float32)


class RaisesInReset(Good):
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32)[np.array([5])], {}


class BadStep(Good):
    def step(self, action):
        return np.zeros(4, np.float32), 0.0, False, False, {}


class NotFinite(Good):
    def reset(self, *, seed=None, options=None):
        return np.full(2, np.nan, np.float32), {}


def nothing():
    pass


def number(size=1):
    return 3


class Random(Good):
    def __init__(self):
        self.action_space = spaces.Discrete(int(np.random.randint(2, 2**30)))


class ChangesActions(Good):
    def reset(self, *, seed=None, options=None):
        self.action_space = spaces.Discrete(2 + self.episodes // 3)
        return super().reset()


class ChangesObservations(Good):
    def reset(self, *, seed=None, options=None):
        super().reset()
        return np.zeros(2 + self.episodes // 3, np.float32), {}


class ChangesLimits(Good):
    def reset(self, *, seed=None, options=None):
        self.observation_space = spaces.Box(-1, 1 + self.episodes, (2,), np.float32)
        return super().reset()


size = 3
"""


def at(text: str, between: str = ":") -> str:
    """Return the file and the number of the line that begins with `text`, as messages name it."""
    [line] = [number for number, line in enumerate(BROKEN.splitlines(), 1) if line.strip().startswith(text)]
    return f"broken.py{between}{line}"


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        (
            "NoSpace",
            [at("class NoSpace"), "no observation_space", "gymnasium.spaces"],
        ),
        ("NoneSpace", [at("class NoneSpace"), "action_space is None"]),
        ("Raises", ["ValueError: no such size", at("raise ValueError")]),
        ("Leaves", ["SystemExit", at("raise SystemExit")]),
        ("BadReset", ["environment 0", "shape (3,), expected (2,)", "reset()"]),
        ("OldReset", ["TypeError", "reset()"]),
        ("RaisesInReset", ["IndexError", at("return np.zeros(2, np.float32)[", " line "), "reset()"]),
        ("BadStep", ["environment 0", "shape (4,), expected (2,)", "step()"]),
        ("NotFinite", ["observation", "nan"]),
        ("nothing", ["returned None", at("def nothing"), "gymnasium.Env"]),
        ("number", ["type int", "gymnasium.Env", "pettingzoo.AECEnv"]),
        ("size", ["type int", "not a class or function"]),
        ("Goood", ["has no Goood", "Environments in the file: Good,"]),
    ],
)
def test_a_broken_environment_is_refused_before_a_run_begins(folder, name, facts):
    Path("broken.py").write_text(BROKEN)
    with pytest.raises(SettingsError) as caught:
        load_settings([f"env=./broken.py:{name}"]).env.describe()
    message = str(caught.value)
    assert message.startswith(f"env=./broken.py:{name}")
    for fact in facts:
        assert fact in message
    assert str(folder) not in message or name == "Goood"


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("ignores", ["num_envs=3", "num_envs=1"]),
        ("single", ["single Env", "VectorEnv"]),
        ("forgets", ["VectorEnv", "argument num_envs"]),
        ("ready", ["ready object", "env.num_envs=16"]),
    ],
)
def test_vectors_and_ready_objects_in_a_file(name, facts):
    with pytest.raises(SettingsError) as caught:
        make_world(own(f"mine.py:{name}", num_envs=16 if name == "ready" else 1))
    for fact in facts:
        assert fact in str(caught.value)


def test_wrong_arguments_show_how_it_was_called():
    with pytest.raises(SettingsError, match=r"'depth'.*\n.*\(depth=3\); check env.kwargs"):
        own("mine.py:Cue", kwargs={"depth": 3}).describe()


def test_all_environments_must_be_alike():
    Path("broken.py").write_text(BROKEN)
    with pytest.raises(SettingsError, match="different action_space"):
        make_world(own("broken.py:Random", num_envs=2))


def steps(world: World, count: int) -> None:
    with world:
        world.reset(seed=0)
        for _ in range(count):
            world.step(np.zeros(world.num_slots, int))


@pytest.mark.parametrize("name", ["ChangesActions", "ChangesObservations"])
def test_a_space_that_changes_between_episodes_is_a_failure_of_that_environment(name):
    Path("broken.py").write_text(BROKEN)
    own(f"broken.py:{name}").describe()
    with pytest.raises(
        HoldfastError, match=r"broken.py:Changes\w+: environment 0 \(slot 0\) returned an .*from reset\(\)"
    ):
        steps(make_world(own(f"broken.py:{name}", num_envs=2)), 5)


def test_limits_of_a_box_may_change():
    Path("broken.py").write_text(BROKEN)
    steps(make_world(own("broken.py:ChangesLimits", num_envs=2)), 5)


def test_a_name_of_a_file_is_made_absolute_once(monkeypatch):
    env = own("./mine.py:Cue")
    monkeypatch.chdir("/")
    assert env.describe().obs.shape == (2,)
    assert env.name == "./mine.py:Cue"
    assert os.getcwd() == "/"
