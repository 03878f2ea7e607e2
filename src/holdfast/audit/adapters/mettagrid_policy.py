"""MettaGrid's own LSTM policy, `mettagrid.policy.lstm` (needs `pip install mettagrid[train]`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holdfast.audit.adapters.common import Sampler
from holdfast.audit.adapters.puffer import PufferPolicy


class MettaGridLSTM(PufferPolicy):
    """An LSTMPolicy. PufferLib trains it, so it is audited like a `PufferPolicy`.

        def subject():
            interface = PolicyEnvInterface.from_mg_cfg(MettaGridConfig.EmptyRoom(num_agents=4))
            return MettaGridLSTM(LSTMPolicy(interface))

    Run `holdfast audit mine.py:subject`. Observations are random bytes of the interface's observation space, or what a
    function observations(N, generator) returns.
    """

    def __init__(self, policy: Any, observations: Sampler | None = None, name: str = ""):
        space = policy._policy_env_info.observation_space
        super().__init__(policy.network(), observations=observations or (lambda N, g: random_bytes(N, space.shape, g)))
        self.name = name or type(policy).__name__

    def _to_learn(self, leaf: Tensor) -> Tensor:
        return leaf.unsqueeze(1)  # [B, layers, hidden]: the policy transposes states of three axes itself


def random_bytes(N: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(256, (N, *shape), dtype=torch.uint8, generator=generator)
