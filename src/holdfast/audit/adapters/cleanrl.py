"""Adapter for agents in the style of CleanRL's ppo_atari_lstm.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from holdfast.audit.adapters.common import SampledSubject, Sampler
from holdfast.audit.subject import ACTIONS, NotOfferedError, Outputs, State, source_location
from holdfast.errors import SettingsError


class CleanRLAgent(SampledSubject):
    """An agent with `lstm`, `get_action_and_value(x, lstm_state, done, action=None)` and optionally `get_value`.

        def subject():
            return CleanRLAgent(Agent(envs), obs_shape=(4,))

    Run `holdfast audit mine.py:subject`. Sequences are passed as in CleanRL's update: flat and time-major,
    [T * B, ...], with done as floats. lstm_state is (h, c), each [layers, B, hidden]; B is the number of slots.
    Observations are normal noise of shape obs_shape, or what a function observations(N, generator) returns.
    """

    fixed_flag_dtype = "the adapter passes flags as floats, as CleanRL's update does"

    def __init__(
        self, agent: Any, obs_shape: tuple[int, ...] | None = None, observations: Sampler | None = None, name: str = ""
    ):
        kind = type(agent).__name__
        if not hasattr(agent, "lstm"):
            raise SettingsError(f"{kind} has no attribute `lstm`. Use StepFunction for other kinds of memory.")
        if isinstance(agent.lstm, nn.GRU | nn.RNN):
            raise SettingsError(
                f"{kind}.lstm is nn.{type(agent.lstm).__name__}, but has to be an nn.LSTM with the state (h, c). "
                "Use StepFunction for other kinds of memory."
            )
        super().__init__(obs_shape, observations)
        self.agent = self.module = agent
        self.name = name or kind

    def initial_state(self, B: int) -> State:
        shape = (self.agent.lstm.num_layers, B, self.agent.lstm.hidden_size)
        return torch.zeros(shape), torch.zeros(shape)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        actions, *scores, state = self.agent.get_action_and_value(obs, state, first.float())
        return {ACTIONS: actions, **named(*scores)}, state

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        flat = (obs.flatten(0, 1), state, first.flatten().float(), actions.flatten(0, 1))
        _, *scores, state = self.agent.get_action_and_value(*flat)
        return {name: y.unflatten(0, first.shape) for name, y in named(*scores).items()}, state

    def value(self, obs: Tensor, state: State, first: Tensor) -> Outputs:
        if not hasattr(self.agent, "get_value"):
            raise NotOfferedError("the agent has no get_value method")
        return {"value": self.agent.get_value(obs, state, first.float()).flatten()}

    def where(self, method: str) -> str:
        if method == "value":
            return source_location(self.agent.get_value)
        return source_location(getattr(self.agent, "get_states", self.agent.get_action_and_value))


def named(log_prob: Tensor, entropy: Tensor, value: Tensor) -> Outputs:
    return {"log_prob": log_prob, "entropy": entropy, "value": value.flatten()}
