"""A world, a cell, a component and an agent, each added by defining one class, and used by its name."""

import json

import numpy as np
import pytest
import torch
from pydantic import Field
from torch import nn

from holdfast.config import list_keys, load_run_settings, load_settings
from holdfast.config.registry import AGENTS, CELLS, POLICIES, WORLDS
from holdfast.config.sections import Count, EnvSection, PolicySection, world_name
from holdfast.envs import World, make_world
from holdfast.errors import SettingsError
from holdfast.policies import LSTMWrapper, make_policy
from holdfast.policies.components import component
from holdfast.policies.components.component import Component, Shape
from holdfast.policies.registry import read_graph
from holdfast.recurrence import Core
from holdfast.spec import BoxObs, DiscreteActions, WorldSpec
from holdfast.trainer import train


@pytest.fixture(autouse=True)
def forget_afterwards(monkeypatch):
    """Other tests count what is registered."""
    for registry in (WORLDS, POLICIES, AGENTS, CELLS):
        monkeypatch.setattr(registry, "_classes", dict(registry))
    registered = dict(component.REGISTERED)
    yield
    component.REGISTERED.clear()
    component.REGISTERED.update(registered)


def define_world() -> None:
    class RecallWorld(World):
        """A number is shown at the first step; repeating it at the last step is worth 1."""

        def __init__(self, settings, env_ids, buffers):
            super().__init__(settings.describe(), env_ids, buffers)
            self.length = settings.length
            self.time, self.target = np.zeros(len(env_ids), int), np.zeros(len(env_ids), int)

        def _start(self, index, seed):
            self.time[index], self.target[index] = 0, seed % 2
            self.buffers.obs[index] = (1, seed % 2)

        def _step(self, envs):
            b = self.buffers
            for i in envs:
                self.time[i] += 1
                ended = self.time[i] == self.length
                b.rewards[i] = float(ended and b.actions[i] == self.target[i])
                b.terminated[i], b.truncated[i], b.valid[i] = ended, False, True
                b.obs[i] = b.final_obs[i] = 0
                if ended:
                    self._begin_next(i)

    @WORLDS.register("recall")
    class RecallEnv(EnvSection):
        name: str = world_name("recall", "repeat the number of the first step at the last")
        length: Count = Field(default=3, le=100, description="steps per episode")

        def describe(self):
            return WorldSpec(self.name, BoxObs((2,), "float32"), DiscreteActions(("0", "1")), agents_per_env=1)

        def build(self, env_ids, buffers=None):
            return RecallWorld(self, env_ids, buffers)


def define_cell() -> None:
    @CELLS.register("decay")
    class Decay(Core):
        """A leaky sum of inputs: h = h / 2 + W x."""

        def __init__(self, input_size, hidden_size, num_layers):
            super().__init__(input_size, hidden_size, num_layers)
            self.weight = nn.Linear(input_size, hidden_size)

        @property
        def state_shapes(self):
            return ((1, self.hidden_size),)

        def forward(self, x, state, first):
            h, outputs = state[0][0], []
            for inputs, starts in zip(self.weight(x), first, strict=True):
                h = h.masked_fill(starts[:, None], 0.0) / 2 + inputs
                outputs.append(h)
            return torch.stack(outputs), (h[None],)


def train_run(tmp_path, *words: str) -> dict:
    """Train for a few updates; the last line of metrics.jsonl."""
    settings = load_settings([*words, f"runs_dir={tmp_path}", "run=demo", "progress=off"])
    run = train(settings).run
    assert load_run_settings(run / "config.yaml").env == settings.env
    return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])


def test_a_world_and_a_cell_are_trained_by_their_names(tmp_path):
    define_world()
    define_cell()
    small = ["env.num_envs=4", "trainer.horizon=8", "trainer.total_timesteps=96", "audit=off"]
    last = train_run(tmp_path, "env=recall", "env.length=4", "policy.core=decay", *small)
    assert last["agent_steps"] == 96
    assert last["episode_length"] == 4
    assert last["parity_max_abs_logratio"] < 1e-5


def test_settings_of_a_new_world_are_checked_and_listed_as_all_others():
    define_world()
    assert load_settings(["env=recall", "env.length=7"]).env.model_dump()["length"] == 7
    for words, parts in (
        (["env=recal"], ["no such world", "Did you mean recall?", "pettingzoo:MODULE, recall"]),
        (["env=recall", "env.lenght=7"], ["unknown key env.lenght", "env.length"]),
        (["env=recall", "env.length=101"], ["env.length=101", "from 1 to 100"]),
        (["env=memory", "env.length=7"], ["env.length belongs to env=recall"]),
        (["recall"], ["Did you mean env=recall?"]),
    ):
        with pytest.raises(SettingsError) as caught:
            load_settings(words)
        assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert "env.length" in {key.name for key in list_keys(["env=recall"])}


def test_a_new_cell_is_a_choice_and_a_component():
    with pytest.raises(SettingsError, match=r"policy\.core=decay: needs one of own, gru, lstm"):
        load_settings(["policy.core=decay"])
    define_cell()
    with pytest.raises(SettingsError, match=r"Did you mean decay\?"):
        load_settings(["policy.core=deca"])
    settings = load_settings(["agent=fast", "policy.core=decay", "policy.hidden=8"])
    policy = make_policy(settings.policy, settings.env.describe())
    assert policy.state_shapes == ((1, 8),)
    graph = read_graph("fast")
    graph["components"]["_core_"]["type"] = "Decay"
    assert make_policy(load_settings(["agent=fast"]).policy, settings.env.describe(), graph).state_shapes == ((1, 128),)


def test_a_new_component_is_used_in_a_file(tmp_path):
    class Halve(Component):
        def build(self, params, inputs, context):
            return Shape("vector", inputs[0].sizes)

        def forward(self, x):
            return x / 2

    graph = read_graph("fast")
    graph["components"]["halved"] = {"type": "Halve", "sources": ["_core_"]}
    graph["components"]["critic_1"]["sources"] = ["halved"]
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(graph))
    last = train_run(
        tmp_path, f"agent={file}", "env.num_envs=1", "env.rooms=2", "trainer.total_timesteps=64", "trainer.horizon=16"
    )
    assert last["agent_steps"] == 64


def test_a_new_agent_with_settings_of_its_own_is_chosen_by_its_name():
    define_world()

    @POLICIES.register("tiny")
    class TinySettings(PolicySection):
        py_agent: str = Field(default="tiny", pattern="^tiny$", description="one linear layer")
        width: Count = Field(default=4, le=64, description="width of the encoder")

        @classmethod
        def names(cls):
            return ("tiny",)

    @AGENTS.register("tiny")
    class Tiny(LSTMWrapper):
        def __init__(self, spec, width, hidden_size=8, num_layers=1, core="lstm", memory_scope="episode"):
            super().__init__(spec, width, hidden_size, num_layers, core, memory_scope)
            self.encoder = nn.Linear(2, width)

    settings = load_settings(["env=recall", "py_agent=tiny", "policy.width=6"])
    with make_world(settings.env) as world:
        policy = make_policy(settings.policy, world.world_spec)
    assert isinstance(policy, Tiny)
    assert policy.encoder.out_features == 6
    with pytest.raises(SettingsError, match=r"policy\.width belongs to py_agent=tiny"):
        load_settings(["py_agent=box", "policy.width=6"])


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="'lstm' is already registered"):
        CELLS.register("lstm")(type("Other", (), {}))
