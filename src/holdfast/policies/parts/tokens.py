"""Grid-world tokens as a convolution's input, without building the grid.

A window of 11 x 11 cells with 40 channels holds 4,840 numbers of which some 30 are not zero. Each token touches at most
four places of a 5 x 5, stride 3 convolution's output, so the convolution is a sparse matrix product: the same
numbers as the dense one, for about a ninth of the time (`holdfast bench` measures it).
"""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any, NamedTuple

import torch
from scipy.sparse import coo_array
from torch import Tensor, nn

from holdfast.spec import Feature, TokenObs

NO_TOKEN = 0xFF
GLOBAL_TOKEN = 0xFE


class PlacedTokens(NamedTuple):
    """The usable tokens of N observations, one after the other: each [number of tokens]."""

    N: int
    observation: Tensor
    cell: Tensor
    channel: Tensor
    weight: Tensor


class TokenGrid(nn.Module):
    """Which channel, cell and weight each token stands for, as look-up tables.

    A number has one channel and is divided by its normalisation. A category has a channel per value, because value 0
    is as real as the others. A global token stands on the agent's own cell, the centre. Windows smaller than `min_side`
    are centred in a grid of that side; larger ones in the next side that adds `stride` cells all around, so that a
    convolution of that stride reaches every cell.
    """

    def __init__(self, obs: TokenObs, min_side: int = 11, stride: int = 3):
        super().__init__()
        rows, columns = obs.window
        self.side = min_side
        while self.side < max(rows, columns):
            self.side += 2 * stride
        self.num_channels = sum(max(1, f.num_categories) for f in obs.features)
        channel, weight = channel_tables(obs.features)
        # Derived from the world, so not part of what is learned or saved.
        self.register_buffer("channel", channel, persistent=False)  # [256 * 256] by attribute and value, -1: unknown
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("cell", cell_table(rows, columns, self.side), persistent=False)  # [256], -1: nowhere
        self._warned = False

    channel: Tensor
    weight: Tensor
    cell: Tensor

    def forward(self, tokens: Tensor) -> PlacedTokens:
        """Tokens [N, K, 3] uint8 -> the usable ones among them."""
        N, K, _ = tokens.shape
        position = (tokens[..., 0] != NO_TOKEN).flatten().nonzero().squeeze(1)
        chosen = tokens.reshape(N * K, 3)[position].long()
        coordinate, attribute, value = chosen.unbind(-1)
        entry = attribute * 256 + value
        cell, channel = self.cell[coordinate], self.channel[entry]
        usable = (cell >= 0) & (channel >= 0)
        placed = PlacedTokens(N, position // K, cell, channel, self.weight[entry])
        if bool(usable.all()):
            return placed
        self._warn_once(chosen[~usable])  # pyright: ignore  (its decorator is untyped)
        return PlacedTokens(N, *(x[usable] for x in placed[1:]))

    @torch.compiler.disable
    def _warn_once(self, ignored: Tensor) -> None:
        if self._warned:
            return
        self._warned = True
        coordinate, attribute, value = ignored[0].tolist()
        warnings.warn(
            f"ignoring {len(ignored)} tokens this policy has no place for, the first of them with coordinate "
            f"{coordinate:#04x}, attribute {attribute}, value {value}. This is said once.",
            stacklevel=2,
        )


def channel_tables(features: tuple[Feature, ...]) -> tuple[Tensor, Tensor]:
    """Channel (-1: none) and weight of every (attribute, value), each [256 * 256]."""
    channel = torch.full((256, 256), -1)
    weight = torch.zeros(256, 256)
    next_channel = 0
    for feature in sorted(features, key=lambda f: f.id):
        if feature.num_categories:
            n = feature.num_categories
            channel[feature.id, :n] = torch.arange(next_channel, next_channel + n)
            weight[feature.id, :n] = 1.0
            next_channel += n
        else:
            channel[feature.id] = next_channel
            weight[feature.id] = torch.arange(256) / feature.normalization
            next_channel += 1
    return channel.flatten(), weight.flatten()


def cell_table(rows: int, columns: int, side: int) -> Tensor:
    """Cell of the side x side grid for every coordinate byte [256]; -1 for bytes that name no cell of the window."""
    cell = torch.full((256,), -1)
    top, left = (side - rows) // 2, (side - columns) // 2
    for row in range(min(rows, 16)):
        for column in range(min(columns, 16)):
            cell[row << 4 | column] = (row + top) * side + column + left
    cell[GLOBAL_TOKEN] = (side // 2) * side + side // 2
    cell[NO_TOKEN] = -1
    return cell


class TokenConv2d(nn.Module):
    """nn.Conv2d over the grid that tokens describe. `weight` and `bias` are laid out as in nn.Conv2d."""

    def __init__(self, grid: TokenGrid, out_channels: int, kernel_size: int, stride: int):
        super().__init__()
        self.kernel_size = kernel_size
        self.out_side = (grid.side - kernel_size) // stride + 1
        self.weight = nn.Parameter(torch.empty(out_channels, grid.num_channels, kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.orthogonal_(self.weight)
        place, offset = self._touches(grid.side, stride)
        self.register_buffer("place", place, persistent=False)  # [cells, touches], -1 behind the last one
        self.register_buffer("offset", offset, persistent=False)

    place: Tensor
    offset: Tensor

    def _touches(self, side: int, stride: int) -> tuple[Tensor, Tensor]:
        """For every cell, the places of the output it touches, and where in the kernel it then falls."""
        most = math.ceil(self.kernel_size / stride) ** 2
        place = torch.full((side * side, most), -1)
        offset = torch.zeros(side * side, most, dtype=torch.long)
        for row, column in itertools.product(range(side), repeat=2):
            found = [
                (i * self.out_side + j, (row - i * stride) * self.kernel_size + column - j * stride)
                for i, j in itertools.product(range(self.out_side), repeat=2)
                if 0 <= row - i * stride < self.kernel_size and 0 <= column - j * stride < self.kernel_size
            ]
            for k, (p, o) in enumerate(found):
                place[row * side + column, k], offset[row * side + column, k] = p, o
        assert (place[:, 0] >= 0).all(), "a cell that touches no place would be invisible"
        return place, offset

    def forward(self, tokens: PlacedTokens) -> Tensor:
        """-> [N, out_channels, out_side, out_side] (channels last in storage)."""
        places, area = self.out_side**2, self.kernel_size**2
        place = self.place[tokens.cell]  # [tokens, touches]
        touch = (place >= 0).flatten().nonzero().squeeze(1)
        token = touch // place.shape[1]
        row = tokens.observation[token] * places + place.flatten()[touch]
        column = tokens.channel[token] * area + self.offset[tokens.cell].flatten()[touch]
        kernel = self.weight.permute(1, 2, 3, 0).reshape(-1, self.weight.shape[0])
        y = sparse_product(row, column, tokens.weight[token], kernel, tokens.N * places)  # pyright: ignore[reportCallIssue]
        return (y + self.bias).view(tokens.N, self.out_side, self.out_side, -1).permute(0, 3, 1, 2)


@torch.compiler.disable
def sparse_product(row: Tensor, column: Tensor, values: Tensor, dense: Tensor, num_rows: int) -> Tensor:
    """Sparse matrix [num_rows, columns], its entries in any order, times dense [columns, D]; differentiable in dense."""
    if dense.device.type == "cpu":
        return SparseProduct.apply(row.int(), column.int(), values, dense, num_rows)  # type: ignore[return-value]
    return dense.new_zeros(num_rows, dense.shape[1]).index_add(0, row, dense[column] * values.unsqueeze(1))


class SparseProduct(torch.autograd.Function):
    """By scipy: one pass over the entries either way. torch on CPU needs them sorted for each direction, and MKL."""

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
