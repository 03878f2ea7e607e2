"""A convolution over grid-world tokens, without building the grid.

A window of 11 x 11 cells with 40 channels holds 4,840 numbers, of which about 30 are not zero. Each token reaches at most
four outputs of a 5 x 5, stride 3 convolution, so the convolution is a sparse matrix product. It gives the same
result as the dense convolution in about a ninth of the time (`make bench` measures both).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from scipy.sparse import coo_array
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.policies.parts.layers import linear
from holdfast.policies.parts.tokens import PlacedTokens, TokenSet, pick
from holdfast.policies.vocabulary import Adaptive, Vocabulary, grow
from holdfast.spec import WorldSpec


class TokenConv2d(Adaptive):
    """A convolution over tokens with the same results and the same weight shapes as nn.Conv2d over the dense grid."""

    def __init__(self, num_channels: int, side: int, out_channels: int, kernel_size: int, stride: int = 1):
        super().__init__()
        self.side, self.kernel_size, self.stride = side, kernel_size, stride
        self.out_side = (side - kernel_size) // stride + 1
        self.weight = nn.Parameter(torch.empty(out_channels, num_channels, kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.orthogonal_(self.weight)
        place, offset = self._reached_outputs(side, stride)
        self.place = nn.Buffer(place, persistent=False)  # [cells, max. outputs per cell], padded with -1
        self.offset = nn.Buffer(offset, persistent=False)

    def _reached_outputs(self, side: int, stride: int) -> tuple[Tensor, Tensor]:
        """Return, for every cell, the outputs it contributes to and the kernel offset for each of these outputs."""
        most = math.ceil(self.kernel_size / stride) ** 2
        place = torch.full((side * side, most), -1)
        offset = torch.zeros(side * side, most, dtype=torch.long)
        for row, column in itertools.product(range(side), repeat=2):
            found = [
                (i * self.out_side + j, (row - i * stride) * self.kernel_size + column - j * stride)
                for i, j in itertools.product(range(self.out_side), repeat=2)
                if 0 <= row - i * stride < self.kernel_size and 0 <= column - j * stride < self.kernel_size
            ]
            assert found, "a cell contributes to no output; change kernel_size or stride"
            for k, (p, o) in enumerate(found):
                place[row * side + column, k], offset[row * side + column, k] = p, o
        return place, offset

    def adapt(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        self.weight = grow(self.weight, len(vocabulary.channels), axis=1)

    def forward(self, tokens: PlacedTokens | TokenSet) -> Tensor:
        """Return the convolution [N, out_channels, out_side, out_side], in channels-last memory format.

        A TokenSet, which TokenGrid returns while exporting, is convolved as a dense grid.
        """
        if isinstance(tokens, TokenSet):
            grid = summed(
                tokens.weight, tokens.channel * self.side**2 + tokens.cell, self.weight.shape[1] * self.side**2
            )
            return F.conv2d(grid.unflatten(1, (-1, self.side, self.side)), self.weight, self.bias, self.stride)
        places, area = self.out_side**2, self.kernel_size**2
        place = self.place.index_select(0, tokens.cell)  # [tokens, max. outputs per cell]
        entry = (place >= 0).flatten().nonzero().squeeze(1)
        token = entry // place.shape[1]
        row = pick(tokens.observation * places, token) + pick(place.flatten(), entry)
        offset = pick(self.offset.index_select(0, tokens.cell).flatten(), entry)
        column = pick(tokens.channel * area, token) + offset
        kernel = self.weight.permute(1, 2, 3, 0).reshape(-1, self.weight.shape[0])
        y = sparse_product(row, column, pick(tokens.weight, token), kernel, tokens.N * places)  # pyright: ignore[reportCallIssue]
        return (y + self.bias).view(tokens.N, self.out_side, self.out_side, -1).permute(0, 3, 1, 2)


class OwnLinear(Adaptive):
    """nn.Linear over the channels of the agent's cell: the agent's inventory and state, and the global tokens."""

    def __init__(self, num_channels: int, side: int, out_features: int):
        super().__init__()
        self.own_cell = (side // 2) * side + side // 2
        initial = linear(num_channels, out_features)
        self.weight, self.bias = initial.weight, initial.bias

    def adapt(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        self.weight = grow(self.weight, len(vocabulary.channels), axis=1)

    def forward(self, tokens: PlacedTokens | TokenSet) -> Tensor:
        """Return features [N, out_features]."""
        if isinstance(tokens, TokenSet):
            weight = tokens.weight.where(tokens.cell == self.own_cell, 0.0)
            return F.linear(summed(weight, tokens.channel, self.weight.shape[1]), self.weight, self.bias)
        own = (tokens.cell == self.own_cell).nonzero().squeeze(1)
        observation, channel, weight = (x[own] for x in (tokens.observation, tokens.channel, tokens.weight))
        return sparse_product(observation, channel, weight, self.weight.T, tokens.N) + self.bias  # pyright: ignore[reportCallIssue]


def summed(weight: Tensor, place: Tensor, size: int) -> Tensor:
    """Return [N, size], where every entry is the sum of the weights [N, K] whose `place` [N, K] it is."""
    return weight.new_zeros(weight.shape[0], size).scatter_add(1, place, weight)


@torch.compiler.disable
def sparse_product(row: Tensor, column: Tensor, values: Tensor, dense: Tensor, num_rows: int) -> Tensor:
    """Multiply a sparse matrix [num_rows, columns] by `dense` [columns, D]; gradients flow to `dense` only.

    row, column, values: the entries of the sparse matrix, in any order.
    """
    if dense.device.type == "cpu":
        return SparseProduct.apply(row.int(), column.int(), values, dense, num_rows)  # type: ignore[return-value]
    return dense.new_zeros(num_rows, dense.shape[1]).index_add(0, row, dense[column] * values.unsqueeze(1))


class SparseProduct(torch.autograd.Function):
    """Sparse matrix product, computed by scipy, because on CPU torch would need MKL and sorted entries."""

    @staticmethod
    def forward(ctx: Any, row: Tensor, column: Tensor, values: Tensor, dense: Tensor, num_rows: int) -> Tensor:
        ctx.entries = values.numpy(), (row.numpy(), column.numpy())
        ctx.num_columns = len(dense)
        return torch.from_numpy(coo_array(ctx.entries, shape=(num_rows, len(dense))) @ dense.detach().numpy())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None, Tensor, None]:
        values, (row, column) = ctx.entries
        transposed = coo_array((values, (column, row)), shape=(ctx.num_columns, len(grads[0])))
        return None, None, None, torch.from_numpy(transposed @ grads[0].contiguous().numpy()), None
