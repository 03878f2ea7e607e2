"""Example: the shortest whole policy for grid worlds. Copy it, rename it, change the encoder."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.policies.lstm_wrapper import LSTMWrapper
from holdfast.policies.parts.heads import ActionHead
from holdfast.policies.parts.layers import Conv2d, linear
from holdfast.policies.parts.token_conv import OwnLinear, TokenConv2d
from holdfast.policies.parts.tokens import TokenGrid, grid_side
from holdfast.policies.plain.grid_agent import require_tokens
from holdfast.spec import WorldSpec


class Example(LSTMWrapper):
    head_names = ("value", "action")

    def __init__(
        self,
        spec: WorldSpec,
        hidden_size: int = 512,
        num_layers: int = 2,
        core: str = "lstm",
        memory_scope: str = "episode",
    ):
        require_tokens(spec)
        places = (grid_side(spec) // 3 - 2) ** 2  # of the second convolution: one, for windows up to 11 cells
        super().__init__(spec, 128 * places + 128, hidden_size, num_layers, core, memory_scope)
        self.obs = TokenGrid(spec, self.vocabulary)
        self.cnn1 = TokenConv2d(self.obs.num_channels, self.obs.side, 128, kernel_size=5, stride=3)
        self.cnn2 = Conv2d(128, 128, kernel_size=3)
        self.own = OwnLinear(self.obs.num_channels, self.obs.side, 128)
        self.value = linear(hidden_size, 1)
        self.action = ActionHead(spec, self.vocabulary, hidden_size)

    def encode_observations(self, observations: Tensor) -> Tensor:
        """Tokens [N, K, 3] -> what is around the agent and what it has itself, [N, 256] for windows up to 11."""
        tokens = self.obs(observations)
        around = F.relu(self.cnn2(F.relu(self.cnn1(tokens)))).flatten(1)
        return torch.cat([around, F.relu(self.own(tokens))], 1)

    def decode_actions(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Memory's output [N, 512] -> scores [N, A], values [N]."""
        return self.action(hidden), self.value(hidden).squeeze(-1)
