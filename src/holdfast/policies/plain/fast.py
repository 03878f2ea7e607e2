"""Fast, the standard agent for grid worlds: a small CNN over the agent's window, two LSTM layers, wide heads."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from holdfast.config.registry import AGENTS
from holdfast.policies.parts.layers import Conv2d, activate, linear
from holdfast.policies.parts.token_conv import TokenConv2d
from holdfast.policies.plain.grid_agent import GridAgent
from holdfast.spec import WorldSpec


@AGENTS.register("fast")
class Fast(GridAgent):
    def __init__(self, spec: WorldSpec, **options: Any):
        super().__init__(spec, **options)
        self.cnn1 = TokenConv2d(self.obs.num_channels, self.obs.side, 64, kernel_size=5, stride=3)
        self.cnn2 = Conv2d(64, 64, kernel_size=3)
        self.fc1 = linear(64 * (self.cnn1.out_side - 2) ** 2, 128)
        self.encoded_obs = linear(128, 128)

    def encode_observations(self, observations: Tensor) -> Tensor:
        x = activate(self.cnn1(self.obs(observations)), "relu")
        x = activate(self.cnn2(x), "relu").flatten(1)
        x = activate(self.fc1(x), "relu")
        return activate(self.encoded_obs(x), "relu")
