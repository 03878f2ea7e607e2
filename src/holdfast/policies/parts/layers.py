"""Layers with the initialisation the agents share, and the bilinear action head."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.recurrence import LSTM, Core


def linear(inputs: int, outputs: int, gain: float = 1.0) -> nn.Linear:
    """Orthogonal weights, zero bias. Before a tanh use gain sqrt(2)."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def mlp(sizes: list[int], activation: type[nn.Module]) -> nn.Sequential:
    """Linear layers of these sizes, each followed by the activation."""
    gain = math.sqrt(2.0)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [linear(inputs, outputs, gain), activation()]
    return nn.Sequential(*layers)


@torch.no_grad()
def open_forget_gates(core: Core) -> None:
    """LSTM biases 0 but for the forget gates' 1: remember first, and leave the candidates unsaturated."""
    if isinstance(core, LSTM):
        H = core.hidden_size
        for name, parameter in core.named_parameters():
            if name.startswith("bias"):
                parameter.zero_()
            if name.startswith("bias_ih"):
                parameter[H : 2 * H] = 1.0


class Tanh(torch.autograd.Function):
    """tanh x = 2 sigmoid(2 x) - 1. On CPU torch.tanh costs three times its sigmoid; over 1024 critic units that shows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.sigmoid(x * 2.0).mul_(2.0).sub_(1.0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grads[0] * (1.0 - y.square())


class ActionEmbedding(nn.Embedding):
    """One vector per action, small enough that a new policy is close to uniform."""

    def __init__(self, num_embeddings: int, size: int):
        super().__init__(num_embeddings, size)
        nn.init.orthogonal_(self.weight)
        with torch.no_grad():
            self.weight.mul_(0.1 / self.weight.abs().max())


class BilinearHead(nn.Module):
    """score[a] = tanh(h W) . e[a] + b. tanh(h W) is the same for every action, so it is computed once."""

    def __init__(self, inputs: int, embedding_size: int):
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.W = nn.Parameter(torch.empty(inputs, embedding_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(1).uniform_(-bound, bound))

    def forward(self, h: Tensor, embeddings: Tensor) -> Tensor:
        """h [N, inputs], embeddings [A, embedding_size] -> scores [N, A]."""
        return torch.tanh(h @ self.W) @ embeddings.T + self.bias
