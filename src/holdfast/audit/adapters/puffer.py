"""Policies in the style of PufferLib's LSTMWrapper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from holdfast.audit.adapters.common import Observe, blanked, observing
from holdfast.audit.failing import PolicyRaisedError
from holdfast.audit.subject import Outputs, State, Subject, source_of
from holdfast.errors import SettingsError, first_line, place_of


class PufferPolicy(Subject):
    """A policy with `forward_eval(obs, state)` to act and `forward(obs [B, T, ...], state)` to learn.

        def subject():
            return PufferPolicy(pufferlib.models.LSTMWrapper(env, policy), obs_shape=(4,))

    `holdfast audit mine.py:subject`. The policy has a `hidden_size`. state is a dict whose lstm_h and lstm_c are replaced by
    each call: [B, hidden] for forward_eval, [1, B, hidden] for forward. Acting is audited as a careful caller does it: rows
    whose episode begins are zeroed before the call (PufferLib's own trainer zeroes all of them at the start of a rollout,
    and none at the end of an episode). Learning is given no flags, as PufferLib's trainer gives none, so it runs through
    episode ends. That is a finding; `--declare learning_without_resets` if it is meant. With `flags_while_learning` they
    are in state["done"], [B, T], for a trainer of one's own that puts them there.
    """

    slot_axis = 0

    def __init__(
        self,
        policy: Any,
        obs_shape: tuple[int, ...] | None = None,
        observations: Observe | None = None,
        name: str = "",
        flags_while_learning: bool = False,
    ):
        self.flags_while_learning = flags_while_learning
        if not flags_while_learning:
            self.flags_are_cast = "it looks at no flags: its caller clears its state"
        if not hasattr(policy, "hidden_size"):
            raise SettingsError(f"{type(policy).__name__} has no hidden_size, the width of lstm_h and lstm_c.")
        self.policy = self.module = policy
        self._observe = observing(type(self).__name__, obs_shape, observations)
        self.name = name or type(policy).__name__

    def observations(self, N: int, generator: torch.Generator) -> Tensor:
        return self._observe(N, generator)

    def initial_state(self, B: int) -> State:
        return torch.zeros(B, self.policy.hidden_size), torch.zeros(B, self.policy.hidden_size)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        h, c = blanked(state, first, self.slot_axis)
        kept = {"lstm_h": h, "lstm_c": c, "done": first}
        logits, values = self._call(self.policy.forward_eval, "forward_eval", obs, kept)
        return {"logits": joined(logits), "value": values.flatten()}, self._rows(kept)

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        T, B = first.shape
        kept = {key: self._to_learn(leaf) for key, leaf in zip(("lstm_h", "lstm_c"), state, strict=True)}
        if self.flags_while_learning:
            kept["done"] = first.transpose(0, 1)
        logits, values = self._call(self.policy, "forward", obs.transpose(0, 1), kept)
        outputs = {"logits": joined(logits).unflatten(0, (B, T)), "value": values.reshape(B, T)}
        return {name: y.transpose(0, 1) for name, y in outputs.items()}, self._rows(kept)

    def where(self, method: str) -> str:
        return source_of(type(self.policy).forward if method == "sequence" else type(self.policy).forward_eval)

    def _call(self, call: Callable[..., Any], name: str, obs: Tensor, kept: dict[str, Tensor]) -> tuple[Any, Tensor]:
        """The policy's answer, or why there is none, with what it was handed: shapes are what goes wrong here."""
        handed = ", ".join(f"{key} {[*x.shape]}" for key, x in kept.items())
        asked = f"{type(self.policy).__name__}.{name}(observations {[*obs.shape]}, state: {handed})"
        try:
            return call(obs, kept)
        except Exception as error:
            said = f"{type(error).__name__}: {first_line(error)}{place_of(error)}"
            raise PolicyRaisedError(f"{asked} raised {said}") from error

    def _to_learn(self, leaf: Tensor) -> Tensor:
        """[B, hidden] as `forward` takes it: with a layer in front."""
        return leaf.unsqueeze(0)

    def _rows(self, kept: dict[str, Tensor]) -> State:
        """What a call left behind as [B, hidden]; the one layer stands before or after the slots."""
        return tuple(kept[key].reshape(-1, self.policy.hidden_size) for key in ("lstm_h", "lstm_c"))


def joined(logits: Any) -> Tensor:
    """Logits of one choice, of several, or a normal distribution, as one tensor [..., numbers]."""
    if isinstance(logits, torch.distributions.Normal):
        return torch.cat([logits.mean, logits.stddev], -1)
    return logits if isinstance(logits, Tensor) else torch.cat(list(logits), -1)
