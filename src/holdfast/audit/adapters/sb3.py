"""Adapter for sb3-contrib's recurrent policies: the `policy` of a RecurrentPPO."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

from holdfast.audit.adapters.common import slot_major, time_major
from holdfast.audit.subject import ACTIONS, Outputs, State, Subject, source_location

METHODS = {"step": "forward", "sequence": "evaluate_actions", "value": "predict_values"}


class BothStates(NamedTuple):
    """(h, c) of actor and critic, like sb3-contrib's RNNStates."""

    pi: State
    vf: State


def both(state: State) -> BothStates:
    return BothStates(state[:2], state[2:] or state[:2])


class RecurrentPPOPolicy(Subject):
    """A RecurrentActorCriticPolicy as a subject. Observations have to be one array (no MultiInput).

        def subject():
            model = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", device="cpu")
            return RecurrentPPOPolicy(model.policy)

    Run `holdfast audit mine.py:subject`. Acting calls `forward`, as rollouts do. `get_distribution`, which evaluation
    uses, and `predict_values`, which computes bootstrap values, are checked too. Learning calls `evaluate_actions` with
    the layout of the rollout buffer: flat and slot-major, [B * T, ...], with flags as floats. That call returns no
    state, so the final state is taken from `forward` on the same sequences.
    """

    fixed_flag_dtype = "the adapter passes flags as floats, as the rollout buffer does"

    def __init__(self, policy: Any, name: str = ""):
        self.policy = self.module = policy
        self.name = name or type(policy).__name__

    def observations(self, N: int, generator: torch.Generator) -> Tensor:
        space = deepcopy(self.policy.observation_space)
        space.seed(int(torch.randint(2**31 - 1, (1,), generator=generator)))
        return torch.from_numpy(np.stack([space.sample() for _ in range(N)]))

    def initial_state(self, B: int) -> State:
        lstm = self.policy.lstm_actor
        # Without its own LSTM, the critic's state is passed through and never read.
        tensors = 4 if self.policy.lstm_critic is not None else 2
        return tuple(torch.zeros(lstm.num_layers, B, lstm.hidden_size) for _ in range(tensors))

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        states, starts = both(state), first.float()
        actions, values, log_prob, after = self.policy.forward(obs, states, starts)
        scores = {"value": values.flatten(), "log_prob": log_prob, **self._choices(obs, states, starts)}
        return {ACTIONS: actions, **scores}, (*after.pi, *after.vf)[: len(state)]

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        states = both(state)
        flat_obs, starts, taken = (slot_major(x) for x in (obs, first.float(), actions))
        values, log_prob, entropy = self.policy.evaluate_actions(flat_obs, taken, states, starts)
        scores = {"value": values.flatten(), "log_prob": log_prob, **self._choices(flat_obs, states, starts)}
        if entropy is not None:  # a squashed distribution has none
            scores["entropy"] = entropy
        after = self.policy.forward(flat_obs, states, starts)[-1]
        return time_major(scores, *first.shape), (*after.pi, *after.vf)[: len(state)]

    def value(self, obs: Tensor, state: State, first: Tensor) -> Outputs:
        return {"value": self.policy.predict_values(obs, both(state).vf, first.float()).flatten()}

    def where(self, method: str) -> str:
        return source_location(getattr(type(self.policy), METHODS.get(method, "forward")))

    def _choices(self, obs: Tensor, states: BothStates, starts: Tensor) -> Outputs:
        """Return the parameters of the distribution, because the log-prob of one action could hide a difference."""
        found = self.policy.get_distribution(obs, states.pi, starts)[0].distribution
        if isinstance(found, Categorical):
            return {"full_log_probs": found.logits}
        parts = found if isinstance(found, list) else [found]
        return {"distribution": torch.cat([p.mean if isinstance(p, Normal) else p.logits for p in parts], -1)}
