"""Adapter for policies of the TensorDict contract: `policy(td, state=None, action=None)`, as Holdfast's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from holdfast.audit.adapters.common import SampledSubject, Sampler
from holdfast.audit.subject import ACTIONS, NotOfferedError, Outputs, State, UnusableError, source_location
from holdfast.policies import Policy
from holdfast.policies.tensordict_api import read_state
from holdfast.recurrence import Core
from holdfast.spec import WorldSpec, keys

NAMES = {
    keys.ACTIONS: ACTIONS,
    keys.LOG_PROB: "log_prob",
    keys.VALUES: "value",
    keys.ENTROPY: "entropy",
    keys.FULL_LOG_PROBS: "full_log_probs",
}
METHODS = {"rebuild": "__init__", "reset_slots": "reset_env_memory"}
METHODS |= dict.fromkeys(("step", "sequence", "act", "value_from_memory", "score"), "forward")


class ContractPolicy(SampledSubject):
    """A policy of this contract as a subject. observations(N, generator) returns [N, ...], make() a new policy."""

    passes_rewards = True

    def __init__(self, policy: Policy, observations: Sampler, name: str = "", make: Callable[[], Policy] | None = None):
        super().__init__(None, observations)
        self.policy = self.module = policy
        self.spec: WorldSpec = policy.spec
        self.make = make
        self.no_gradient = tuple(policy.no_gradient)
        self.name = name or type(policy).__name__
        implied = {"lifetime_memory": policy.memory_scope == "lifetime", "memoryless": not policy.has_memory()}
        self.declared = frozenset(policy.declared_deviations) | {name for name, meant in implied.items() if meant}

    def initial_state(self, B: int) -> State:
        return self.policy.initial_state(B)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        td = self.policy(self._td(obs, first, torch.zeros_like(first)), state=state)
        return outputs_of(td), self._final(td, len(obs), 1)

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        td = self._scored(obs, first, torch.zeros_like(first), state, actions)
        T, B = first.shape
        return {name: y.transpose(0, 1) for name, y in outputs_of(td).items()}, self._final(td, B, T)

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        td = self._td(obs, terminated, truncated)
        td.set(keys.SLOT_IDS, slots)
        return outputs_of(self.policy(td))

    def value_from_memory(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        memory = tuple(leaf.index_select(1, slots) for leaf in self.policy.get_memory())
        td = self._td(obs, terminated, truncated)
        self.policy.predict_values({str(key): td[str(key)].unsqueeze(0) for key in td.sorted_keys}, memory)
        return outputs_of(self.policy(td, state=memory))

    def score(
        self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor | None
    ) -> Outputs:
        td = self._scored(obs, terminated, truncated, state, actions)
        return {name: y.transpose(0, 1) for name, y in outputs_of(td).items()}

    def get_memory(self) -> State:
        return tuple(self.policy.get_memory())

    def set_memory(self, memory: State) -> None:
        self.policy.set_memory(memory)

    def reset_memory(self) -> None:
        self.policy.reset_memory()

    def reset_slots(self, slots: Tensor) -> None:
        self.policy.reset_env_memory(slots)

    def rebuild(self) -> ContractPolicy:
        if self.make is None:
            raise NotOfferedError("no rebuild() provided")
        return ContractPolicy(self.make(), self.observations, self.name)

    def where(self, method: str) -> str:
        """Return the location of the user's own method, or else of the user's own core, or else of the class."""
        name = METHODS.get(method, method)
        own = next((kind for kind in type(self.policy).__mro__ if name in vars(kind)), None)
        if own is not None and own is not Policy:
            return source_location(vars(own)[name])
        core = next((part for part in self.policy.modules() if isinstance(part, Core) and not ships(part)), None)
        return source_location(type(self.policy) if core is None or name != "forward" else type(core).forward)

    def _td(self, obs: Tensor, terminated: Tensor, truncated: Tensor) -> TensorDict:
        """Pack the inputs, [B] or [B, T], into the keys of the contract."""
        rewards = rewards_of(obs, terminated.dim())
        actions = actions_of(rewards, self.spec)
        if self.last_reward is not None:
            first = (terminated != 0) | (truncated != 0)
            rewards = rewards.masked_fill(first, self.last_reward)
            actions[first] = 0 if self.last_reward == 0 else 1
        entries: dict[str, Any] = {
            keys.OBS: obs,
            keys.REWARDS: rewards,
            keys.DONES: terminated,
            keys.TRUNCATEDS: truncated,
            keys.LAST_ACTIONS: actions,
        }
        if self.spec.mask_size:
            entries[keys.ACTION_MASK] = torch.ones(*terminated.shape, self.spec.mask_size, dtype=torch.bool)
        return TensorDict(entries, batch_size=terminated.shape)

    def _scored(
        self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor | None
    ) -> TensorDict:
        td = self._td(obs.transpose(0, 1), terminated.transpose(0, 1), truncated.transpose(0, 1))
        assert actions is not None
        return self.policy(td, state=state, action=actions.transpose(0, 1))

    def _final(self, td: TensorDict, B: int, T: int) -> State:
        leaves = len(self.policy.state_shapes)
        if leaves and keys.FINAL_STATE + "0" not in td:
            if T == 1:
                raise UnusableError("forward stored no state: end it with self._store_lstm_state(h, c, env_id).")
            return ()  # a hand-written forward may return none from a sequence
        return read_state(td, leaves, B, T, keys.FINAL_STATE)


def ships(part: object) -> bool:
    """Whether the class of an object is Holdfast's own."""
    return type(part).__module__.partition(".")[0] == "holdfast"


def rewards_of(obs: Tensor, axes: int) -> Tensor:
    """Return a reward for each observation, computed from it, because a policy may read rewards."""
    return obs.detach().double().unsqueeze(-1).flatten(axes).sum(-1).sin().float()


def actions_of(rewards: Tensor, spec: WorldSpec) -> Tensor:
    """Return a last action for each reward [...] from -1 to 1, computed from it, because a policy may read last actions."""
    options = [((rewards + 1) * 500 * (i + 1)).long() % n for i, n in enumerate(spec.actions.sizes)]
    columns = options + [rewards] * (math.prod(spec.actions.shape) - len(options))
    return torch.stack(columns, -1).reshape(*rewards.shape, *spec.actions.shape).to(getattr(torch, spec.actions.dtype))


def outputs_of(td: TensorDict) -> Outputs:
    return {name: td[key] for key, name in NAMES.items() if key in td}
