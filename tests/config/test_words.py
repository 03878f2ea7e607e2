"""Good words: what people type, and the settings it becomes."""

# pyright: reportAttributeAccessIssue=false
# Settings and specs are unions; each test knows which member it has.

from itertools import permutations

import pytest

from holdfast.config import load_settings
from holdfast.envs import CollectEnv, GymEnv, GymVectorEnv, MemoryEnv, PettingZooEnv
from holdfast.policies.settings import BoxPolicySettings, PlainPolicySettings


def test_the_seeds_command_line():
    settings = load_settings(
        [
            "py_agent=fast",
            "run=test_fast",
            "trainer.total_timesteps=5000",
            "trainer.num_workers=2",
            "wandb=off",
        ]
    )
    assert isinstance(settings.policy, PlainPolicySettings)
    assert isinstance(settings.env, MemoryEnv)
    assert (settings.run, settings.wandb.mode) == ("test_fast", "off")
    assert (settings.trainer.total_timesteps, settings.trainer.num_workers) == (5000, 2)


@pytest.mark.parametrize(
    "words", list(permutations(["env=gym:CartPole-v1", "env.hide=[1,3]", "py_agent=box", "policy.core=gru"]))
)
def test_short_and_long_keys_mix_in_any_order(words):
    settings = load_settings(words)
    assert isinstance(settings.env, GymEnv)
    assert (settings.env.name, settings.env.hide) == ("gym:CartPole-v1", [1, 3])
    assert isinstance(settings.policy, BoxPolicySettings)
    assert settings.policy.core == "gru"


def test_the_long_forms_are_the_short_forms():
    short = load_settings(["env=collect", "py_agent=fast"])
    assert short == load_settings(["env.name=collect", "policy.py_agent=fast"])
    assert isinstance(short.env, CollectEnv)


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        ("trainer.total_timesteps=1e6", "trainer.total_timesteps", 1_000_000),
        ("trainer.total_timesteps=1.5e3", "trainer.total_timesteps", 1500),
        ("trainer.total_timesteps=1000000", "trainer.total_timesteps", 1_000_000),
        ("trainer.total_timesteps=5_000", "trainer.total_timesteps", 5000),
        ("seed=010", "seed", 10),  # YAML 1.1 would say 8
        ("trainer.lr=3e-4", "trainer.lr", 3e-4),
        ("trainer.lr=1", "trainer.lr", 1.0),
        ("trainer.lr= 0.5 ", "trainer.lr", 0.5),
        ("trainer.batch_size=None", "trainer.batch_size", None),
        ("trainer.batch_size=null", "trainer.batch_size", None),
        ("policy.hidden=none", "policy.hidden", None),
        ("policy.hidden=32", "policy.hidden", 32),
        ("trainer.normalize_advantage=off", "trainer.normalize_advantage", False),
        ("trainer.normalize_advantage=False", "trainer.normalize_advantage", False),
        ("debug.shapes=on", "debug.shapes", True),
        ("debug.shapes=true", "debug.shapes", True),
        ("tensorboard=on", "tensorboard", "on"),
        ("tensorboard=true", "tensorboard", "on"),
        ("wandb=off", "wandb.mode", "off"),
        ("wandb=offline", "wandb.mode", "offline"),
        ("wandb=False", "wandb.mode", "off"),
        ("wandb.mode=on", "wandb.mode", "on"),
        ("wandb={mode: on, group: a}", "wandb.group", "a"),
        ("progress=off", "progress", "off"),
        ("env.window=5", "env.window", 5),
        ("run=1e3", "run", "1e3"),  # a name, whatever YAML thinks of it
        ("run=007", "run", "007"),
        ("run=on", "run", "on"),
        ("run=None", "run", "None"),
        ("run='quoted'", "run", "quoted"),
        ("run=a.b-c_D9", "run", "a.b-c_D9"),
        ("runs_dir=/tmp/with space: and colon", "runs_dir", "/tmp/with space: and colon"),
        ("device=cuda:1", "device", "cuda:1"),
        ("py_agent=box policy.log_std=-0.5", "policy.log_std", -0.5),
        ("py_agent=box policy.encoder=[32, 1e2]", "policy.encoder", [32, 100]),
        ("py_agent=box policy.heads=[]", "policy.heads", []),
        ("trainer.schedule.lr.kind=cosine", "trainer.schedule.lr.kind", "cosine"),
        ("trainer={lr: 0.5, schedule: {lr: {kind: linear}}}", "trainer.schedule.lr.kind", "linear"),
        ("env=gym:X env.kwargs={a: 1, b: [x, 2]}", "env.kwargs", {"a": 1, "b": ["x", 2]}),
        ("env=gym:X env.kwargs.a=1.5 env.kwargs.b=on", "env.kwargs", {"a": 1.5, "b": True}),
        ("env=gym:X env.kwargs.a=None env.kwargs.b.c=d", "env.kwargs", {"a": None, "b": {"c": "d"}}),
        ("env=gym:pkg.mod:Name-v0", "env.name", "gym:pkg.mod:Name-v0"),
    ],
)
def test_values(words, path, value):
    found = load_settings(_split(words))
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


def _split(line: str) -> list[str]:
    """At spaces that begin a new word, so that values may hold spaces."""
    words = []
    for part in line.split(" "):
        if "=" in part or not words:
            words.append(part)
        else:
            words[-1] += f" {part}"
    return words


@pytest.mark.parametrize(
    ("env", "section", "py_agent"),
    [
        ("memory", MemoryEnv, "fast"),
        ("collect", CollectEnv, "fast"),
        ("gym:CartPole-v1", GymEnv, "box"),
        ("gymvec:CartPole-v1", GymVectorEnv, "box"),
        ("pettingzoo:mpe2.simple_spread_v3", PettingZooEnv, "box"),
    ],
)
def test_the_world_chooses_the_agent_unless_a_word_does(env, section, py_agent):
    settings = load_settings([f"env={env}"])
    assert type(settings.env) is section
    assert settings.policy.py_agent == py_agent
    other = {"fast": "box", "box": "fast"}[py_agent]
    assert load_settings([f"env={env}", f"py_agent={other}"]).policy.py_agent == other


def test_the_same_word_twice_is_harmless():
    assert load_settings(["seed=3", "seed=3"]).seed == 3
