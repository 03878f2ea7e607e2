"""Example: the shortest complete policy for grid worlds. Copy it, rename it, change the encoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.config.registry import AGENTS
from holdfast.policies.lstm_wrapper import LSTMWrapper
from holdfast.policies.parts.heads import ActionHead
from holdfast.policies.parts.layers import Conv2d, linear
from holdfast.policies.parts.token_conv import OwnLinear, TokenConv2d
from holdfast.policies.parts.tokens import TokenGrid, grid_side
from holdfast.spec import WorldSpec


@AGENTS.register("example")  # only agents that ship with Holdfast need this line
class Example(LSTMWrapper):
    """A CNN encoder, an LSTM and linear heads. options: `num_layers`, `core` and `memory_scope` for LSTMWrapper."""

    head_names = ("value", "action")

    def __init__(self, spec: WorldSpec, hidden_size: int = 512, **options: Any):
        outputs = (grid_side(spec) // 3 - 2) ** 2  # cells after the second convolution: 1 for windows up to 11 x 11
        super().__init__(spec, 128 * outputs + 128, hidden_size, **options)
        self.obs = TokenGrid(spec, self.vocabulary)
        self.cnn1 = TokenConv2d(self.obs.num_channels, self.obs.side, 128, kernel_size=5, stride=3)
        self.cnn2 = Conv2d(128, 128, kernel_size=3)
        self.own = OwnLinear(self.obs.num_channels, self.obs.side, 128)
        self.value = linear(hidden_size, 1)
        self.action = ActionHead(spec, self.vocabulary, hidden_size)

    def encode_observations(self, observations: Tensor) -> Tensor:
        """Return features of the window and of the agent's cell for tokens [N, K, 3]; [N, 256] for windows up to 11 x 11."""
        tokens = self.obs(observations)
        around = F.relu(self.cnn2(F.relu(self.cnn1(tokens)))).flatten(1)
        return torch.cat([around, F.relu(self.own(tokens))], 1)

    def decode_actions(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return action scores [N, A] and values [N] for the core's output [N, hidden_size]."""
        return self.action(hidden), self.value(hidden).squeeze(-1)
