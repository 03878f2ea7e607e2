"""Correct policies of other families than ReferencePolicy, to make mutants of: a policy of the contract, a plain module."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from holdfast.audit.adapters import ContractPolicy
from holdfast.audit.subject import Outputs, State, Subject
from holdfast.policies import LSTMWrapper
from holdfast.policies.tensordict_api import Inputs
from holdfast.spec import BoxObs, DiscreteActions, WorldSpec, keys

OBS, HIDDEN, CHOICES = 4, 6, 3
SPEC = WorldSpec("four numbers", BoxObs((OBS,), "float32"), DiscreteActions(("a", "b", "c")), 1)


class SmallPolicy(LSTMWrapper):
    """A policy of the contract that reads the last reward, but not at episode starts."""

    def __init__(self, spec: WorldSpec):
        super().__init__(spec, input_size=HIDDEN, hidden_size=HIDDEN, num_layers=1)
        self.encoder = nn.Linear(OBS + 1, HIDDEN)
        self.actor, self.critic = nn.Linear(HIDDEN, CHOICES), nn.Linear(HIDDEN, 1)

    def last_reward(self, inputs: Inputs, first: Tensor) -> Tensor:
        return inputs[keys.REWARDS].float().masked_fill(first, 0.0)

    def unroll(self, inputs: Inputs, first: Tensor, start: State) -> tuple[Tensor, Tensor, State]:
        x = torch.cat([inputs[keys.OBS], self.last_reward(inputs, first).unsqueeze(-1)], -1)
        y, final = self.remember(torch.tanh(self.encoder(x)), start, first)
        return self.actor(y), self.critic(y).squeeze(-1), final

    def remember(self, x: Tensor, start: State, first: Tensor) -> tuple[Tensor, State]:
        """Memory over x [T, B, HIDDEN]."""
        return self.core(x, start, first)


def in_contract(kind: type[SmallPolicy]) -> Callable[..., ContractPolicy]:
    """Return a function that makes a subject of this policy."""

    def make(seed: int = 0) -> ContractPolicy:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            policy = kind(SPEC)
            for parameter in policy.parameters():  # last layers start near zero
                nn.init.normal_(parameter, 0.0, 0.4)
        return ContractPolicy(policy, sample, kind.__name__, lambda: kind(SPEC))

    make.__name__, make.__doc__, make.__module__ = kind.__name__, kind.__doc__, kind.__module__
    return make


def sample(N: int, generator: torch.Generator) -> Tensor:
    return torch.randn(N, OBS, generator=generator)


class PlainNetwork(nn.Module):
    """A GRU cell and two heads. Its caller keeps the state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(OBS, HIDDEN)
        self.actor, self.critic = nn.Linear(HIDDEN, CHOICES), nn.Linear(HIDDEN, 1)


class PlainPolicy(Subject):
    """A plain module with `step` and `sequence`. State is [slots, HIDDEN]."""

    slot_axis = 0

    def __init__(self, seed: int = 0):
        self.name = type(self).__name__
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module: PlainNetwork = self.network()  # pyright: ignore[reportIncompatibleVariableOverride]

    def network(self) -> PlainNetwork:
        return PlainNetwork()

    def observations(self, N: int, generator: torch.Generator) -> Tensor:
        return sample(N, generator)

    def initial_state(self, B: int) -> State:
        return (torch.zeros(B, HIDDEN),)

    def encode(self, obs: Tensor, first: Tensor) -> Tensor:
        return obs

    def reset(self, h: Tensor, first: Tensor) -> Tensor:
        return h * (first == 0).float().unsqueeze(-1)

    def advance(self, obs: Tensor, h: Tensor, first: Tensor) -> Tensor:
        return self.module.cell(self.encode(obs, first), self.reset(h, first))

    def heads(self, y: Tensor) -> Outputs:
        return {"logits": self.module.actor(y), "value": self.module.critic(y).squeeze(-1)}

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        h = self.advance(obs, state[0], first)
        return self.heads(h), (h,)

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        h, ys = state[0], []
        for x, now in zip(obs, first, strict=True):
            h = self.advance(x, h, now)
            ys.append(h)
        return self.heads(torch.stack(ys)), (h,)
