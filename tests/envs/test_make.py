"""From settings to a world: what there is, what is refused in which words, what is imported for it."""

import subprocess
import sys

import pytest
from gymnasium import spaces

from holdfast.config.sections import EnvSection
from holdfast.envs import GymEnv, GymVectorEnv, PettingZooEnv, make_world
from holdfast.errors import SettingsError
from holdfast.spec import BoxActions, BoxObs, DiscreteActions, DiscreteObs, WorldSpec


@pytest.mark.parametrize(
    ("settings", "spec"),
    [
        (
            GymEnv(name="gym:CartPole-v1", hide=[1]),
            WorldSpec("gym:CartPole-v1", BoxObs((3,), "float32"), DiscreteActions(("0", "1")), 1),
        ),
        (
            GymEnv(name="gym:Pendulum-v1"),
            WorldSpec("gym:Pendulum-v1", BoxObs((3,), "float32"), BoxActions((-2.0,), (2.0,)), 1),
        ),
        (
            GymEnv(name="gym:FrozenLake-v1"),
            WorldSpec("gym:FrozenLake-v1", DiscreteObs(16), DiscreteActions(("0", "1", "2", "3")), 1),
        ),
        (
            GymVectorEnv(name="gymvec:CartPole-v1", hide=[1, 3]),
            WorldSpec("gymvec:CartPole-v1", BoxObs((2,), "float32"), DiscreteActions(("0", "1")), 1),
        ),
        (
            PettingZooEnv(name="pettingzoo:mpe2.simple_spread_v3", kwargs={"N": 2}),
            WorldSpec(
                "pettingzoo:mpe2.simple_spread_v3",
                BoxObs((12,), "float32"),
                DiscreteActions(("0", "1", "2", "3", "4")),
                2,
            ),
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_describe_says_what_the_world_is(settings: EnvSection, spec: WorldSpec):
    assert settings.describe() == spec
    with make_world(settings, env_ids=range(2)) as world:
        assert world.world_spec == spec
        assert world.num_slots == 2 * spec.agents_per_env


def gym(name: str, **kwargs: object) -> GymEnv:
    return GymEnv(name=f"gym:{name}", kwargs=kwargs)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (gym("CartPol-v1"), ["env=gym:CartPol-v1", "no environment 'CartPol-v1'", "Nearest:", "CartPole-v1"]),
        (gym("cartpole"), ["no environment 'cartpole'", "CartPole-v1"]),
        (gym("CartPole-v7"), ["no environment 'CartPole-v7'", "CartPole-v1"]),
        (gym("qqqqqqq"), ["no environment 'qqqqqqq'", "pprint_registry"]),
        (gym("no_such_module:CartPole-v1"), ["no_such_module", "creating the environment failed"]),
        (gym("CartPole-v1", gravity=3), ["creating the environment failed", "TypeError", "gravity"]),
        (
            gym("toy_gym:Odd-v0", fault="make"),
            ["creating the environment failed", "OSError: the licence server is down"],
        ),
        (
            gym("toy_gym:Mirror-v0", action_space=spaces.Text(2)),
            ["Text(", "Supported: Discrete"],
        ),
        (
            gym(
                "toy_gym:Mirror-v0",
                action_space=spaces.Discrete(2),
                observation_space=spaces.Tuple([spaces.Sequence(spaces.Discrete(2))]),
            ),
            ["gym:toy_gym:Mirror-v0, in its entry '0', has Sequence", "Supported: Box, Discrete"],
        ),
        (GymEnv(name="gym:CartPole-v1", hide=[4]), ["env.hide=[4]", "4 entries", "0 to 3"]),
        (GymEnv(name="gym:CartPole-v1", hide=[0, 1, 2, 3]), ["env.hide=[0, 1, 2, 3]", "hides all 4"]),
        (GymEnv(name="gym:FrozenLake-v1", hide=[0]), ["env.hide=[0]", "Discrete(16)"]),
        (GymVectorEnv(name="gymvec:CartPole-v1", hide=[9]), ["env.hide=[9]", "0 to 3"]),
        (GymVectorEnv(name="gymvec:Pendulum-v1"), ["no vector implementation", "env=gym:Pendulum-v1"]),
        (GymVectorEnv(name="gymvec:CartPol-v1"), ["no environment 'CartPol-v1'", "CartPole-v1"]),
        (
            PettingZooEnv(name="pettingzoo:mpe2.simple_spred_v3"),
            ["mpe2.simple_spred_v3", "mpe2.simple_spread_v3"],
        ),
        (
            PettingZooEnv(name="pettingzoo:no_such_package.game"),
            ["'no_such_package.game'", "ModuleNotFoundError"],
        ),
        (PettingZooEnv(name="pettingzoo:json"), ["'json'", "parallel_env()", "env()"]),
        (PettingZooEnv(name="pettingzoo:toy_zoo", kwargs={"crowd": 3}), ["creating the environment failed", "crowd"]),
        (PettingZooEnv(name="pettingzoo:toy_zoo", kwargs={"leave": ()}), ["no possible_agents"]),
        (
            PettingZooEnv(name="pettingzoo:toy_zoo", kwargs={"fault": "obs space"}),
            ["ann and cas", "different observation spaces"],
        ),
        (
            PettingZooEnv(name="pettingzoo:toy_zoo", kwargs={"fault": "action space"}),
            ["ann and bob", "different action spaces", "Discrete(2)", "Discrete(3)"],
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_cannot_be_made_is_refused_in_the_users_words(settings: EnvSection, words: list[str]):
    with pytest.raises(SettingsError) as described:
        settings.describe()
    with pytest.raises(SettingsError) as made:
        make_world(settings)
    assert str(described.value) == str(made.value)
    assert all(word in str(described.value) for word in words), described.value
    assert len(str(described.value).splitlines()) <= 3


def test_more_workers_than_environments_are_refused():
    with pytest.raises(SettingsError, match=r"trainer.num_workers=5(?s:.*)env.num_envs=3"):
        make_world(GymEnv(name="gym:CartPole-v1", num_envs=3), num_workers=5)


def test_vector_environments_take_no_workers():
    with pytest.raises(SettingsError, match=r"num_workers=2 with env=gymvec:CartPole-v1(?s:.*)depend on the number"):
        make_world(GymVectorEnv(name="gymvec:CartPole-v1"), num_workers=2)


def test_importing_worlds_imports_no_heavy_library():
    code = (
        "import sys, holdfast.envs.workers, holdfast.envs.gymnasium_world, holdfast.envs.vector_world;"
        "print([name for name in ('torch', 'mettagrid', 'pettingzoo') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
