"""The recurrent policies that `make audit-peers` audits, by the environment of their library. Fresh weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.audit import Subject


@dataclass(frozen=True)
class Peer:
    name: str
    make: Callable[[], Subject]
    declared: frozenset[str] = frozenset()


def sb3() -> list[Peer]:
    kinds = {
        "a critic of its own": {},
        "shared LSTM": {"shared_lstm": True, "enable_critic_lstm": False},
        "critic without LSTM": {"enable_critic_lstm": False},
        "two layers": {"n_lstm_layers": 2},
    }
    return [Peer(f"RecurrentPPO, {name}", lambda more=more: recurrent_ppo(more)) for name, more in kinds.items()]


def recurrent_ppo(more: dict[str, Any]) -> Subject:
    """CartPole without velocities, as in `make bench-peers`."""
    from peers.cartpole import make_env
    from sb3_contrib import RecurrentPPO

    from holdfast.audit.adapters import RecurrentPPOPolicy

    policy_kwargs = {"lstm_hidden_size": 64, **more}
    model = RecurrentPPO("MlpLstmPolicy", make_env(), policy_kwargs=policy_kwargs, seed=0, device="cpu")
    return RecurrentPPOPolicy(model.policy)


def puffer() -> list[Peer]:
    kinds = {
        "PufferLib LSTMWrapper": puffer_wrapper,
        "MettaGrid LSTMPolicy, arena": mettagrid_in_the_arena,
        "MettaGrid LSTMPolicy, CartPole": mettagrid_in_a_box_world,
    }
    through = frozenset({"learning_without_resets"})
    return [
        *(Peer(name, make) for name, make in kinds.items()),
        *(Peer(f"{name}, run-through declared", make, through) for name, make in kinds.items()),
    ]


def puffer_wrapper() -> Subject:
    import pufferlib.models
    from gymnasium.spaces import Box, Discrete

    from holdfast.audit.adapters import PufferPolicy

    seen = Box(-1, 1, (4,))
    env = SimpleNamespace(observation_space=seen, single_observation_space=seen, single_action_space=Discrete(3))
    return PufferPolicy(pufferlib.models.LSTMWrapper(env, pufferlib.models.Default(env)), obs_shape=(4,))


def mettagrid_in_the_arena() -> Subject:
    from mettagrid.config.mettagrid_config import MettaGridConfig
    from mettagrid.policy.policy_env_interface import PolicyEnvInterface

    from holdfast.config import load_settings

    env: Any = load_settings(["env=arena"]).env
    return mettagrid(PolicyEnvInterface.from_mg_cfg(MettaGridConfig(game=env.game().config)), env)


def mettagrid_in_a_box_world() -> Subject:
    import gymnasium as gym
    from mettagrid.policy.policy_env_interface import PolicyEnvInterface

    from holdfast.config import load_settings

    world = gym.make("CartPole-v1")
    interface = PolicyEnvInterface.from_spaces(
        observation_space=world.observation_space, action_space=world.action_space, num_agents=1
    )
    return mettagrid(interface, load_settings(["env=gym:CartPole-v1"]).env)


def mettagrid(interface: Any, env: Any) -> Subject:
    """MettaGrid's policy with real observations of this world."""
    from mettagrid.policy.lstm import LSTMPolicy

    from holdfast.audit.adapters import MettaGridLSTM
    from holdfast.audit.sample_observations import observation_sampler

    return MettaGridLSTM(LSTMPolicy(interface), observation_sampler(env))


def skrl() -> list[Peer]:
    from peers.skrl_models import make_models

    from holdfast.audit.adapters import SkrlModels

    kinds = {
        "resets on terminated, as in its examples": ("terminated",),
        "resets on both flags": ("terminated", "truncated"),
    }
    return [
        Peer(f"skrl LSTM models, {name}", lambda flags=flags: SkrlModels(*make_models(flags)))
        for name, flags in kinds.items()
    ]


def rl_games() -> list[Peer]:
    kinds: dict[str, tuple[str, dict[str, Any], bool]] = {
        "LSTM, discrete actions": ("discrete", {"name": "lstm", "layers": 1}, False),
        "GRU of two layers": ("discrete", {"name": "gru", "layers": 2}, False),
        "LSTM, a critic of its own, real-valued actions": ("continuous", {"name": "lstm", "layers": 1}, True),
    }
    return [Peer(f"rl_games {name}", lambda kind=kind: rl_games_model(*kind)) for name, kind in kinds.items()]


def rl_games_model(actions: str, rnn: dict[str, Any], separate: bool) -> Subject:
    from rl_games.algos_torch.model_builder import ModelBuilder

    from holdfast.audit.adapters import RlGamesModel

    normal = {
        "mu_activation": "None",
        "sigma_activation": "None",
        "mu_init": {"name": "default"},
        "sigma_init": {"name": "const_initializer", "val": 0},
        "fixed_sigma": True,
    }
    network = {
        "name": "actor_critic",
        "separate": separate,
        "space": {actions: normal if actions == "continuous" else {}},
        "mlp": {"units": [16], "activation": "tanh", "initializer": {"name": "default"}},
        "rnn": {"units": 16, **rnn},
    }
    name = {"discrete": "discrete_a2c", "continuous": "continuous_a2c_logstd"}[actions]
    sizes = {"actions_num": 3, "input_shape": (4,), "num_seqs": 1, "value_size": 1}
    model = ModelBuilder().load({"model": {"name": name}, "network": network}).build(sizes)
    return RlGamesModel(model, obs_shape=(4,))


def rsl_rl() -> list[Peer]:
    return [
        Peer("rsl_rl LSTM", lambda: rsl_rl_models("lstm", 1)),
        Peer("rsl_rl GRU of two layers", lambda: rsl_rl_models("gru", 2)),
    ]


def rsl_rl_models(kind: str, layers: int) -> Subject:
    import torch
    from rsl_rl.models import RNNModel
    from tensordict import TensorDict

    from holdfast.audit.adapters import RslRlModels

    seen = TensorDict({"policy": torch.zeros(1, 4)}, batch_size=[1])
    groups = {"actor": ["policy"], "critic": ["policy"]}
    sizes = {"hidden_dims": [16], "rnn_type": kind, "rnn_hidden_dim": 16, "rnn_num_layers": layers}
    normal = {"class_name": "GaussianDistribution", "init_std": 1.0}
    actor = RNNModel(seen, groups, "actor", 3, distribution_cfg=normal, **sizes)
    return RslRlModels(actor, RNNModel(seen, groups, "critic", 1, **sizes))


def torchrl() -> list[Peer]:
    return [
        Peer("TorchRL LSTMModule", lambda: torchrl_policy("LSTMModule")),
        Peer("TorchRL GRUModule of two layers", lambda: torchrl_policy("GRUModule", num_layers=2)),
    ]


def torchrl_policy(kind: str, **more: Any) -> Subject:
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torch import nn
    from torch.distributions import Categorical
    from torchrl import modules

    from holdfast.audit.adapters import TorchRLPolicy

    encoder = TensorDictModule(nn.Linear(4, 16), in_keys=["observation"], out_keys=["encoded"])
    memory = getattr(modules, kind)(16, 16, in_key="encoded", out_key="features", **more)
    head = TensorDictModule(nn.Linear(16, 3), in_keys=["features"], out_keys=["logits"])
    actor = modules.ProbabilisticActor(head, in_keys=["logits"], distribution_class=Categorical, return_log_prob=True)
    critic = modules.ValueOperator(nn.Linear(16, 1), in_keys=["features"])
    policy = modules.ActorValueOperator(TensorDictSequential(encoder, memory), actor, critic)
    return TorchRLPolicy(
        policy.get_policy_operator(), modules.set_recurrent_mode, policy.get_value_head(), obs_shape=(4,)
    )
