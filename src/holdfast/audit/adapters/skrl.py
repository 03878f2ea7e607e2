"""Adapter for skrl's recurrent models, as its PPO_RNN and A2C_RNN call them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from holdfast.audit.adapters.common import (
    SampledSubject,
    Sampler,
    last_steps,
    slot_major,
    time_major,
    zero_where_first,
)
from holdfast.audit.subject import ACTIONS, Outputs, State, source_location
from holdfast.errors import SettingsError


class SkrlModels(SampledSubject):
    """A policy and a value model of skrl, or one model for both, whose memory is `inputs["rnn"]`.

        def subject():
            return SkrlModels(models["policy"], models["value"])

    Run `holdfast audit mine.py:subject`. While acting, the adapter zeroes the state at episode starts, as skrl's agents
    do. For learning, it passes `terminated` and `truncated`, which mark the last step of an episode, and the state of every
    step; a model uses only the state of a sequence's first step. `compute` has to read the length of sequences from
    `self.sequence_length`, as in skrl's examples: the adapter sets it for every call. Observations are normal noise of
    shape obs_shape, or what a function observations(N, generator) returns.
    """

    fixed_flag_dtype = "the adapter passes booleans, as skrl's memory does"

    def __init__(
        self,
        policy: Any,
        value: Any = None,
        obs_shape: tuple[int, ...] | None = None,
        observations: Sampler | None = None,
        name: str = "",
    ):
        self.models = {"policy": policy} if value is None else {"policy": policy, "value": value}
        self._separate = [*dict.fromkeys(self.models.values())]
        for model in self._separate:
            if sizes_of(model) and not hasattr(model, "sequence_length"):
                raise SettingsError(
                    f"{type(model).__name__} has no sequence_length. Let compute() read the length of sequences from "
                    "self.sequence_length, so that the audit can use sequences of any length."
                )
        super().__init__(obs_shape or (policy.num_observations,), observations)
        self.module = nn.ModuleList(self._separate)
        self.name = name or type(policy).__name__

    def initial_state(self, B: int) -> State:
        sizes = [size for model in self._separate for size in sizes_of(model)]
        return tuple(torch.zeros(layers, B, hidden) for layers, _, hidden in sizes)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        self._set(training=False)
        return self._act({"observations": obs}, zero_where_first(state, first, self.slot_axis))

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return self.score(obs, first, torch.zeros_like(first), state, actions), ()  # skrl's agents use no final state

    def score(
        self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor | None
    ) -> Outputs:
        assert actions is not None
        T, B = terminated.shape
        inputs = {"observations": slot_major(obs), "taken_actions": slot_major(actions)}
        for name, flags in (("terminated", terminated), ("truncated", truncated)):
            inputs[name] = slot_major(last_steps(flags)).unsqueeze(-1)
        start = zero_where_first(state, terminated[0] | truncated[0], self.slot_axis)
        self._set(training=True, sequence_length=T)
        outputs, _ = self._act(inputs, tuple(leaf.repeat_interleave(T, self.slot_axis) for leaf in start))
        return time_major({name: y for name, y in outputs.items() if name != ACTIONS}, T, B)

    def where(self, method: str) -> str:
        return source_location(type(self.models["policy"]).compute)

    def _set(self, training: bool, sequence_length: int = 1) -> None:
        for model in self._separate:
            model.train(training)
            model.sequence_length = sequence_length

    def _act(self, inputs: dict[str, Any], state: State) -> tuple[Outputs, State]:
        """Call the policy, then the value model, as skrl's agents do. Return the outputs and the state of both."""
        count = len(sizes_of(self.models["policy"]))
        actions, found = self.models["policy"].act({**inputs, "rnn": [*state[:count]]}, role="policy")
        after = found.get("rnn", [])
        outputs = {ACTIONS: actions, "log_prob": found["log_prob"].sum(-1)}
        outputs |= {name: found[name] for name in ("net_output", "mean_actions") if name in found}
        if "value" in self.models:
            rest = state[count:] if len(self._separate) == 2 else state
            inputs = {name: x for name, x in inputs.items() if name != "taken_actions"}
            values, found = self.models["value"].act({**inputs, "rnn": [*rest]}, role="value")
            outputs["value"] = values.flatten()
            after = [*after, *found.get("rnn", [])] if len(self._separate) == 2 else after
        return outputs, tuple(after)


def sizes_of(model: Any) -> list[tuple[int, int, int]]:
    """Return (layers, environments, hidden) of each tensor of a model's state."""
    return model.get_specification().get("rnn", {}).get("sizes", [])
