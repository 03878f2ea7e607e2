"""Recurrent models for skrl: a policy and a value model, each with an LSTM, written to the contract of its documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium.spaces import Box, Discrete
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from torch import Tensor, nn

OBSERVED, HIDDEN = 4, 16


class Recurrent(Model):
    """An LSTM that learns in pieces, which end where an episode ends in any sequence."""

    def __init__(self, flags: Sequence[str], outputs: int):
        super().__init__(observation_space=Box(-1, 1, (OBSERVED,)), action_space=Discrete(3), device="cpu")
        self.flags = flags  # the flags that reset the state in learning
        self.sequence_length = 8
        self.lstm, self.head = nn.LSTM(OBSERVED, HIDDEN, batch_first=True), nn.Linear(HIDDEN, outputs)

    def get_specification(self) -> dict[str, Any]:
        size = (1, 1, HIDDEN)
        return {"rnn": {"sequence_length": self.sequence_length, "sizes": [size, size]}}

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        x, state = inputs["observations"], inputs["rnn"]
        if not self.training:
            y, state = self.lstm(x.unsqueeze(1), tuple(state))
            return self.head(y.squeeze(1)), {"rnn": [*state]}
        T = self.sequence_length
        # The state of every step is stored; a sequence starts from that of its first one.
        state = [leaf.view(1, -1, T, HIDDEN)[:, :, 0].contiguous() for leaf in state]
        done = torch.stack([inputs[flag].view(-1, T) for flag in self.flags]).any(0)
        ends = [t + 1 for t in done[:, :-1].any(0).nonzero().flatten().tolist()]
        pieces = []
        for start, end in zip([0, *ends], [*ends, T], strict=True):
            y, state = self.lstm(x.view(-1, T, OBSERVED)[:, start:end], tuple(state))
            state = [leaf * ~done[:, end - 1, None] for leaf in state]
            pieces.append(y)
        return self.head(torch.cat(pieces, 1).flatten(0, 1)), {"rnn": state}


class Policy(CategoricalMixin, Recurrent):
    def __init__(self, flags: Sequence[str]):
        Recurrent.__init__(self, flags, 3)
        CategoricalMixin.__init__(self)


class Value(DeterministicMixin, Recurrent):
    def __init__(self, flags: Sequence[str]):
        Recurrent.__init__(self, flags, 1)
        DeterministicMixin.__init__(self)


def make_models(flags: Sequence[str]) -> tuple[Policy, Value]:
    return Policy(flags), Value(flags)
