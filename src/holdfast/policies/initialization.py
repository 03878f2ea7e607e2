"""`policy.init=seeds`: initialise weights as in the first version of these agents, instead of Holdfast's default (`own`).

Most layers are initialised in the same way in both (Linear and Conv orthogonal with gain 1, or sqrt 2 before a tanh;
biases 0). This file re-initialises only the layers that differ; docs/agents.md lists them with the reasons.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from holdfast.policies.components import heads, layers, observations
from holdfast.policies.parts.heads import ActionEmbedding, ActionHead
from holdfast.policies.policy import Policy
from holdfast.recurrence import LSTM, Memoryless, MinGRU
from holdfast.recurrence.recurrent import Recurrent


@torch.no_grad()
def initialize_like_seeds(policy: Policy) -> None:
    """Re-initialise a new policy as the first version of the agents did; only layers that differ are changed."""
    for module in policy.modules():
        match module:
            case Recurrent() | MinGRU():
                # Make each matrix orthogonal as a whole, not gate by gate. The first version had LSTMs only, so biases
                # of GRU and minGRU are not changed.
                for parameter in module.parameters():
                    if parameter.dim() == 2:
                        nn.init.orthogonal_(parameter)
                    elif isinstance(module, LSTM):
                        nn.init.ones_(parameter)
            case Memoryless():
                for layer in module.layers:
                    nn.init.orthogonal_(layer.weight, math.sqrt(2.0))  # type: ignore[arg-type]
            case ActionEmbedding():
                nn.init.orthogonal_(module.weight)
                module.weight.mul_(0.1 / module.weight.abs().max())  # the largest entry becomes 0.1
            case ActionHead():
                nn.init.orthogonal_(module.weight)
            case heads.ActionHead(layer=nn.Linear(weight=weight)):  # actions without names
                nn.init.orthogonal_(weight)
            case layers.Conv2d() | observations.ObsOwnLinear() if module.entry.nonlinearity == "tanh":
                if module.entry.initialization is None:
                    nn.init.orthogonal_(module.layer.weight, math.sqrt(2.0))
