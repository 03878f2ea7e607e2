"""Adapter for recurrent models of rl_games: what its network builder returns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holdfast.audit.adapters.common import SampledSubject, Sampler, joined, slot_major, time_major, zero_where_first
from holdfast.audit.subject import ACTIONS, Outputs, State, source_location


class RlGamesModel(SampledSubject):
    """The model of an rl_games agent (`agent.model`), with an LSTM or GRU.

        def subject():
            return RlGamesModel(agent.model, obs_shape=(4,))

    Run `holdfast audit mine.py:subject`. In acting, the adapter zeroes the state at episode starts, as rl_games does.
    Learning gets observations, actions and `dones` flat and slot-major, [B * T, ...], with `seq_length` and one start
    state per sequence. A model with normalize_value returns values of another scale in learning; they are not compared.
    """

    fixed_flag_dtype = "the adapter passes uint8, as rl_games does"

    def __init__(
        self, model: Any, obs_shape: tuple[int, ...] | None = None, observations: Sampler | None = None, name: str = ""
    ):
        super().__init__(obs_shape, observations)
        self.model = self.module = model
        self.name = name or type(getattr(model, "a2c_network", model)).__qualname__

    def initial_state(self, B: int) -> State:
        return tuple(torch.zeros(len(leaf), B, leaf.shape[-1]) for leaf in self.model.get_default_rnn_state())

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        self.model.eval()
        state = zero_where_first(state, first, self.slot_axis)
        found = self.model({"is_train": False, "prev_actions": None, "obs": obs, "rnn_states": [*state]})
        scores = {"log_prob": -found["neglogpacs"].reshape(len(obs)), "value": found["values"].flatten()}
        return {ACTIONS: found["actions"], **scores, **choices(found)}, tuple(found["rnn_states"])

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        self.model.train()
        T, B = first.shape
        inputs = {"obs": slot_major(obs), "prev_actions": slot_major(actions), "dones": slot_major(first).byte()}
        found = self.model({"is_train": True, **inputs, "rnn_states": [*state], "seq_length": T})
        outputs = {"log_prob": -found["prev_neglogp"].reshape(T * B), "entropy": found["entropy"].reshape(T * B)}
        if not self.model.normalize_value:
            outputs["value"] = found["values"].flatten()
        return time_major(outputs | choices(found), T, B), tuple(found["rnn_states"])

    def where(self, method: str) -> str:
        return source_location(type(self.model).forward)


def choices(found: dict[str, Any]) -> Outputs:
    """Return the parameters of the distribution: log-probs of every choice, or mean and standard deviation."""
    if isinstance(found.get("logits"), Tensor):
        return {"full_log_probs": found["logits"]}
    return {name: joined(found[name]) for name in ("logits", "mus", "sigmas") if name in found}
