"""GridAgent: base class of the plain grid-world agents, with the core and the heads that they share."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from holdfast.policies.lstm_wrapper import LSTMWrapper
from holdfast.policies.parts.heads import ActionEmbedding, BilinearHead
from holdfast.policies.parts.layers import activate, linear
from holdfast.policies.parts.tokens import TokenGrid
from holdfast.spec import WorldSpec


class GridAgent(LSTMWrapper):
    """Base class of grid agents. Subclasses implement `encode_observations`: tokens [N, K, 3] -> features [N, 128].

    options: `hidden_size`, `num_layers`, `core` and `memory_scope` for LSTMWrapper.
    """

    head_names = ("critic", "value", "actor", "action")

    def __init__(self, spec: WorldSpec, **options: Any):
        super().__init__(spec, input_size=128, **options)
        self.obs = TokenGrid(spec, self.vocabulary)
        self.critic_1 = linear(self.core.hidden_size, 1024, math.sqrt(2.0))
        self.value = linear(1024, 1)
        self.actor_1 = linear(self.core.hidden_size, 512)
        self.action_embeds = ActionEmbedding(spec, self.vocabulary, 100, 16)
        self.action = BilinearHead(512, 16)

    def decode_actions(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return action scores [N, A] and values [N] for the core's output [N, H]."""
        values = self.value(activate(self.critic_1(hidden), "tanh")).squeeze(-1)
        return self.action(activate(self.actor_1(hidden), "relu"), self.action_embeds()), values
