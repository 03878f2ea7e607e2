"""Grid-world tokens as a convolution's input, without building the grid.

A window of 11 x 11 cells with 40 channels holds 4,840 numbers of which some 30 are not zero. Each token touches at most
four places of a 5 x 5, stride 3 convolution's output, so the convolution is a sparse matrix product: the same
numbers as the dense one, for about a ninth of the time (`holdfast bench` measures it).
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.spec import Feature, TokenObs

NO_TOKEN = 0xFF
GLOBAL_TOKEN = 0xFE


class TokenGrid(nn.Module):
    """Which channel, cell and weight each token stands for, as look-up tables.

    A number has one channel and is divided by its normalisation. A category has a channel per value, because value 0
    is as real as the others. A global token stands on the agent's own cell, the centre. Windows smaller than `min_side`
    are centred in a grid of that side.
    """

    def __init__(self, obs: TokenObs, min_side: int = 11):
        super().__init__()
        rows, columns = obs.window
        self.side = max(min_side, rows, columns)
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

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens [N, K, 3] uint8 -> cell, channel (int64, -1 where there is no usable token) and weight, each [N, K']."""
        coordinate = tokens[..., 0]
        used = (coordinate != NO_TOKEN).any(0).nonzero()
        tokens = tokens[:, : int(used[-1]) + 1 if len(used) else 1].long()
        coordinate, attribute, value = tokens.unbind(-1)
        entry = attribute * 256 + value
        cell, channel = self.cell[coordinate], self.channel[entry]
        usable = (cell >= 0) & (channel >= 0)
        self._warn_once(tokens, usable)  # pyright: ignore[reportCallIssue]  (its decorator is untyped)
        return cell.where(usable, -1), channel.where(usable, -1), self.weight[entry] * usable

    @torch.compiler.disable
    def _warn_once(self, tokens: Tensor, usable: Tensor) -> None:
        if self._warned:
            return
        ignored = ~usable & (tokens[..., 0] != NO_TOKEN)
        if not ignored.any():
            return
        self._warned = True
        coordinate, attribute, value = tokens[ignored][0].tolist()
        warnings.warn(
            f"ignoring {int(ignored.sum())} tokens this policy has no place for, the first of them with coordinate "
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
        self.register_buffer("offset", self._offsets(grid.side, stride), persistent=False)

    offset: Tensor

    def _offsets(self, side: int, stride: int) -> Tensor:
        """[side * side, places]: where in the kernel a cell falls for each place of the output, -1 for not at all."""
        cells = torch.arange(side)
        starts = torch.arange(self.out_side) * stride
        inside = cells[:, None] - starts  # [side, out_side]
        inside = inside.where((inside >= 0) & (inside < self.kernel_size), -1)
        row, column = inside[:, None, :, None], inside[None, :, None, :]
        offset = (row * self.kernel_size + column).where((row >= 0) & (column >= 0), -1)
        # One more row, all -1, that cell -1 (no token) finds.
        return F.pad(offset.reshape(side * side, -1), (0, 0, 0, 1), value=-1).int()

    def forward(self, cell: Tensor, channel: Tensor, weight: Tensor) -> Tensor:
        """What `TokenGrid` gave, each [N, K] -> [N, out_channels, out_side, out_side] (channels last in storage)."""
        N, places = cell.shape[0], self.offset.shape[1]
        offset = self.offset[cell].transpose(1, 2)  # [N, places, K]
        touches = offset >= 0
        pairs = touches.reshape(-1).nonzero().squeeze(1)
        column = (offset + (channel * self.kernel_size**2).int().unsqueeze(1)).reshape(-1)[pairs]
        values = weight.unsqueeze(1).expand(-1, places, -1).reshape(-1)[pairs]
        row_ends = touches.sum(-1, dtype=torch.int32).reshape(-1).cumsum(0, dtype=torch.int32)
        kernel = self.weight.permute(1, 2, 3, 0).reshape(-1, self.weight.shape[0])
        y = sparse_product(F.pad(row_ends, (1, 0)), column, values, kernel) + self.bias  # pyright: ignore[reportCallIssue]
        return y.view(N, self.out_side, self.out_side, -1).permute(0, 3, 1, 2)


@torch.compiler.disable
def sparse_product(row_ends: Tensor, column: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """Sparse matrix (CSR) times dense [columns, D], differentiable in dense."""
    if torch.backends.mkl.is_available() or dense.is_cuda:
        return _SparseProduct.apply(row_ends, column, values, dense)
    # Without MKL (macOS) torch has no CPU kernel for CSR products; a weighted bag of rows is the same sum, slower.
    return F.embedding_bag(column, dense, row_ends, mode="sum", per_sample_weights=values, include_last_offset=True)


class _SparseProduct(torch.autograd.Function):
    """The built-in backward of a CSR product would also form the gradient of the sparse values, which nobody needs."""

    @staticmethod
    def forward(ctx, row_ends: Tensor, column: Tensor, values: Tensor, dense: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            matrix = torch.sparse_csr_tensor(
                row_ends, column, values, (len(row_ends) - 1, dense.shape[0]), check_invariants=False
            )
        ctx.matrix = matrix
        return matrix @ dense

    @staticmethod
    def backward(ctx, *grads: Tensor):
        return None, None, None, ctx.matrix.t().to_sparse_csr() @ grads[0].contiguous()
