"""Adapters for policies like PufferLib's LSTMWrapper, and for MettaGrid's own (`pip install mettagrid[train]`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from holdfast.audit.adapters.common import SampledSubject, Sampler, joined, zero_where_first
from holdfast.audit.subject import Outputs, PolicyRaisedError, State, source_location
from holdfast.errors import SettingsError, first_line, place_of


class PufferPolicy(SampledSubject):
    """A policy with `forward_eval(obs, state)` to act and `forward(obs [B, T, ...], state)` to learn.

        def subject():
            return PufferPolicy(pufferlib.models.LSTMWrapper(env, policy), obs_shape=(4,))

    Run `holdfast audit mine.py:subject`. The policy needs a `hidden_size`. state is a dict, and each call replaces its
    entries lstm_h and lstm_c: [B, hidden] for forward_eval, [1, B, hidden] for forward. In acting, the adapter zeroes
    the state at episode starts (PufferLib's own trainer only does so at the start of a rollout). Learning gets no
    flags, as in PufferLib's trainer, so it does not reset, and checks of resets fail. If that is intended, use
    `--declare learning_without_resets`. If your trainer passes flags in state["done"], [B, T], set
    `flags_while_learning`.
    """

    slot_axis = 0

    def __init__(
        self,
        policy: Any,
        obs_shape: tuple[int, ...] | None = None,
        observations: Sampler | None = None,
        name: str = "",
        flags_while_learning: bool = False,
    ):
        self.flags_while_learning = flags_while_learning
        if not flags_while_learning:
            self.fixed_flag_dtype = "the policy gets no flags, because the caller resets its state"
        if not hasattr(policy, "hidden_size"):
            raise SettingsError(f"{type(policy).__name__} has no hidden_size (the width of lstm_h and lstm_c).")
        super().__init__(obs_shape, observations)
        self.policy = self.module = policy
        self.name = name or type(policy).__name__

    def initial_state(self, B: int) -> State:
        return torch.zeros(B, self.policy.hidden_size), torch.zeros(B, self.policy.hidden_size)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        h, c = zero_where_first(state, first, self.slot_axis)
        kept = {"lstm_h": h, "lstm_c": c, "done": first}
        logits, values = self._call(self.policy.forward_eval, "forward_eval", obs, kept)
        return {"logits": joined(logits), "value": values.flatten()}, self._final_state(kept)

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        T, B = first.shape
        kept = {key: self._to_learn(leaf) for key, leaf in zip(("lstm_h", "lstm_c"), state, strict=True)}
        if self.flags_while_learning:
            kept["done"] = first.transpose(0, 1)
        logits, values = self._call(self.policy, "forward", obs.transpose(0, 1), kept)
        outputs = {"logits": joined(logits).unflatten(0, (B, T)), "value": values.reshape(B, T)}
        return {name: y.transpose(0, 1) for name, y in outputs.items()}, self._final_state(kept)

    def where(self, method: str) -> str:
        return source_location(type(self.policy).forward if method == "sequence" else type(self.policy).forward_eval)

    def _call(self, call: Callable[..., Any], name: str, obs: Tensor, kept: dict[str, Tensor]) -> tuple[Any, Tensor]:
        """Call the policy. An error lists the shapes of the arguments, which are the usual cause."""
        shapes = ", ".join(f"{key} {[*x.shape]}" for key, x in kept.items())
        try:
            return call(obs, kept)
        except Exception as error:
            raise PolicyRaisedError(
                f"{type(self.policy).__name__}.{name}(observations {[*obs.shape]}, state: {shapes}) raised "
                f"{type(error).__name__}: {first_line(error)}{place_of(error)}"
            ) from error

    def _to_learn(self, leaf: Tensor) -> Tensor:
        """Turn [B, hidden] into what `forward` takes: [1, B, hidden]."""
        return leaf.unsqueeze(0)

    def _final_state(self, kept: dict[str, Tensor]) -> State:
        """Return the state after a call as [B, hidden]. Its layer axis (of size 1) may be before or after the slots."""
        return tuple(kept[key].reshape(-1, self.policy.hidden_size) for key in ("lstm_h", "lstm_c"))


class MettaGridLSTM(PufferPolicy):
    """An LSTMPolicy of `mettagrid.policy.lstm`. PufferLib trains it, so it is audited like a `PufferPolicy`.

        def subject():
            interface = PolicyEnvInterface.from_mg_cfg(MettaGridConfig.EmptyRoom(num_agents=4))
            return MettaGridLSTM(LSTMPolicy(interface))

    Run `holdfast audit mine.py:subject`. Observations are random bytes of the interface's observation space, or what a
    function observations(N, generator) returns.
    """

    def __init__(self, policy: Any, observations: Sampler | None = None, name: str = ""):
        shape = policy._policy_env_info.observation_space.shape

        def random_bytes(N: int, generator: torch.Generator) -> Tensor:
            return torch.randint(256, (N, *shape), dtype=torch.uint8, generator=generator)

        super().__init__(policy.network(), observations=observations or random_bytes)
        self.name = name or type(policy).__name__

    def _to_learn(self, leaf: Tensor) -> Tensor:
        return leaf.unsqueeze(1)  # [B, layers, hidden]: the policy transposes states of three axes itself
