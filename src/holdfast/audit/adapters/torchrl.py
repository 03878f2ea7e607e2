"""Adapter for recurrent policies of TorchRL: modules around an LSTMModule or GRUModule."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from holdfast.audit.adapters.common import SampledSubject, Sampler, zero_where_first
from holdfast.audit.subject import ACTIONS, Outputs, State, source_location
from holdfast.errors import SettingsError

LOG_PROBS = ("action_log_prob", "sample_log_prob")


class TorchRLPolicy(SampledSubject):
    """A ProbabilisticActor or a sequence that ends in one, and optionally a critic.

        def subject():
            return TorchRLPolicy(policy.get_policy_operator(), set_recurrent_mode, policy.get_value_head(), obs_shape=(4,))

    Run `holdfast audit mine.py:subject`. set_recurrent_mode is `torchrl.modules.set_recurrent_mode`. The critic runs after
    the actor on the same TensorDict, as in ClipPPOLoss. States are entries that the modules read as KEY and write as
    ("next", KEY). `is_init` marks the first step of an episode. States stored at such steps are zeros, because the
    environment's primer resets them; learning gets them like that. Set obs_key if observations are not in "observation".
    """

    fixed_flag_dtype = "the adapter passes booleans, as InitTracker does"

    def __init__(
        self,
        actor: Any,
        set_recurrent_mode: Callable[[bool], AbstractContextManager[Any]],
        critic: Any = None,
        obs_shape: tuple[int, ...] | None = None,
        observations: Sampler | None = None,
        obs_key: str = "observation",
        name: str = "",
    ):
        super().__init__(obs_shape, observations)
        self.actor, self.critic, self._mode, self._obs_key = actor, critic, set_recurrent_mode, obs_key
        modules = [actor] if critic is None else [actor, critic]
        self.module = nn.ModuleList(modules)
        self.name = name or type(actor).__name__
        reads, writes = (
            {key for module in modules for key in getattr(module, keys)} for keys in ("in_keys", "out_keys")
        )
        self._states = sorted(key for key in reads if ("next", key) in writes)
        if not self._states:
            raise SettingsError(
                f"{self.name} has no recurrent state: it reads no KEY that it also writes back as ('next', KEY). "
                "Use StepFunction for other kinds of memory."
            )

    def initial_state(self, B: int) -> State:
        obs = self.observations(B, torch.Generator().manual_seed(0))
        with torch.no_grad():  # modules whose state is missing start from zeros
            _, after = self._run(self._data(obs, torch.ones(B, dtype=torch.bool), {}), self.actor)
        return tuple(torch.zeros_like(leaf) for leaf in after)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        held = {key: leaf.transpose(0, 1) for key, leaf in zip(self._states, state, strict=True)}
        data = self._data(obs, first, held)
        with self._mode(False):
            outputs, after = self._run(data, self.actor)
        log_prob = next((data[key] for key in LOG_PROBS if key in data), None)
        return {ACTIONS: data["action"], **outputs, **({} if log_prob is None else {"log_prob": log_prob})}, after

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        start = zero_where_first(state, first[0], self.slot_axis)
        held = {key: with_zeros_after(leaf, len(first)) for key, leaf in zip(self._states, start, strict=True)}
        data = self._data(obs.transpose(0, 1), first.transpose(0, 1), held)
        with self._mode(True):
            found = self.actor.get_dist(data)
            outputs, after = self._run(data)
        outputs["log_prob"] = found.log_prob(actions.transpose(0, 1))
        return {name: y.transpose(0, 1) for name, y in outputs.items()}, tuple(leaf[:, :, -1] for leaf in after)

    def where(self, method: str) -> str:
        return source_location(type(self.actor).forward)

    def _data(self, obs: Tensor, first: Tensor, states: dict[str, Tensor]) -> TensorDict:
        return TensorDict({self._obs_key: obs, "is_init": first.unsqueeze(-1), **states}, batch_size=first.shape)

    def _run(self, data: TensorDict, actor: Any = None) -> tuple[Outputs, State]:
        """Call the modules on data [B] or [B, T]. Return what they wrote, and the states [layers, B, ...]."""
        for module in (actor, self.critic):
            if module is not None:
                module(data)
        skipped = ("action", "state_value", *LOG_PROBS)
        outputs = {key: data[key] for key in self.actor.out_keys if isinstance(key, str) and key not in skipped}
        if "state_value" in data:
            outputs["value"] = data["state_value"].squeeze(-1)
        return outputs, tuple(data["next", key].movedim(-2, 0) for key in self._states)


def with_zeros_after(leaf: Tensor, T: int) -> Tensor:
    """Turn a start state [layers, B, H] into the stored states of T steps, [B, T, layers, H]."""
    start = leaf.transpose(0, 1).unsqueeze(1)
    return torch.cat([start, torch.zeros_like(start).expand(-1, T - 1, -1, -1)], 1)
