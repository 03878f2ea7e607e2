"""Encoders for observations of Gymnasium spaces: images, small grids and integer codes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.policies.parts.layers import RunningNorm

ONE_HOT_ENTRIES, ONE_HOT_SIZE = 1024, 64  # codes become one-hot vectors up to this many entries, or codes per value
EMBEDDING = 16  # width of the embedding of any other code
SIDES = range(3, 17)  # rows and columns of a grid


def is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and min(shape[0], shape[2]) <= 16 and min(sorted(shape)[1:]) >= 10


def is_grid(shape: tuple[int, ...]) -> bool:
    """Whether the shape is that of a picture too small for `ImageEncoder`, such as 7 x 7 cells with 3 codes each."""
    if len(shape) != 3 or is_image(shape):
        return False
    height, width, _ = _cells(shape)
    return height in SIDES and width in SIDES


class ImageEncoder(nn.Module):
    """Three convolutions for images [H, W, C] or [C, H, W]. Pixel values are divided by `scale` first."""

    def __init__(self, shape: tuple[int, ...], scale: float):
        super().__init__()
        self.scale = scale
        self.channels_last = shape[-1] in (1, 3, 4) or shape[-1] < shape[0]
        height, width, channels = shape if self.channels_last else (*shape[1:], shape[0])
        # Kernel/stride 8/4, 4/2, 3/1 is usual for 84 x 84 images; small images need smaller kernels and strides.
        stack = ((8, 4), (4, 2), (3, 1)) if min(height, width) >= 36 else ((3, 1), (3, 2), (3, 1))
        layers = zip((32, 64, 64), stack, strict=True)
        self.stack, self.size = _convolutions((channels, height, width), [(n, *kernel) for n, kernel in layers])

    def forward(self, x: Tensor) -> Tensor:
        """[N, *shape] -> [N, size]."""
        x = x.float() / self.scale
        return self.stack(x.permute(0, 3, 1, 2) if self.channels_last else x).flatten(1)


class GridEncoder(nn.Module):
    """One to three 3 x 3 convolutions for grids [H, W, C] or [C, H, W], without padding.

    Cells often hold small codes although the space allows 0 to 255. Each channel is therefore normalised by its running
    mean and std: the same for all cells, so that a code looks the same wherever it is. A cell of up to four bytes also
    gets the sum of their embeddings, because the order of codes means nothing.
    """

    offsets: Tensor

    def __init__(self, shape: tuple[int, ...], normalize: bool, is_bytes: bool = False):
        super().__init__()
        height, width, channels = _cells(shape)
        self.channels_last = shape[2] == channels and shape[:2] == (height, width)
        self.norm = RunningNorm(channels) if normalize else None
        self.table = nn.Parameter(torch.randn(256 * channels, EMBEDDING)) if is_bytes and channels <= 4 else None
        self.register_buffer("offsets", 256 * torch.arange(channels), persistent=False)
        inputs = channels + (0 if self.table is None else EMBEDDING)
        count = min(3, (min(height, width) - 1) // 2)
        layers = [(outputs, 3, 1) for outputs in (16, 32, 64)[-count:]]
        self.stack, self.size = _convolutions((inputs, height, width), layers)

    def forward(self, x: Tensor) -> Tensor:
        """[N, *shape] -> [N, size]."""
        x = self._channels_last(x)
        cells = x if self.norm is None else self.norm(x)
        if self.table is not None:
            codes = (x.long() + self.offsets).flatten(0, 2)
            embedded = F.embedding_bag(codes, self.table, mode="sum")
            cells = torch.cat([cells, embedded.view(*x.shape[:3], EMBEDDING)], -1)
        return self.stack(cells.permute(0, 3, 1, 2)).flatten(1)

    def absorb(self, x: Tensor) -> None:
        if self.norm is not None:
            self.norm.update(self._channels_last(x).flatten(0, 2))

    def _channels_last(self, x: Tensor) -> Tensor:
        return (x if self.channels_last else x.permute(0, 2, 3, 1)).float()


class CodeEncoder(nn.Module):
    """One-hot vectors for integer codes, or embeddings if the one-hot vectors would be long."""

    offsets: Tensor

    def __init__(self, sizes: tuple[int, ...]):
        """sizes: the number of codes for each value."""
        super().__init__()
        offsets = torch.tensor([0, *sizes[:-1]]).cumsum(0)  # each value has its own columns or rows
        self.register_buffer("offsets", offsets, persistent=False)
        self.num_codes = sum(sizes)
        one_hot = self.num_codes <= ONE_HOT_ENTRIES or max(sizes) <= ONE_HOT_SIZE
        self.table = None if one_hot else nn.Embedding(self.num_codes, EMBEDDING)
        self.size = self.num_codes if one_hot else EMBEDDING * len(sizes)

    def forward(self, x: Tensor) -> Tensor:
        """[N, number of values] -> [N, size]."""
        codes = x.long() + self.offsets
        if self.table is not None:
            return self.table(codes).flatten(1)
        return torch.zeros(x.shape[0], self.num_codes, device=x.device).scatter_(1, codes, 1.0)


def _convolutions(shape: tuple[int, int, int], layers: list[tuple[int, int, int]]) -> tuple[nn.Sequential, int]:
    """Return convolutions with relu, each (outputs, kernel, stride), for inputs `shape` [C, H, W], and the output size."""
    channels, height, width = shape
    modules: list[nn.Module] = []
    for outputs, kernel, stride in layers:
        conv = nn.Conv2d(channels, outputs, kernel, stride)
        nn.init.orthogonal_(conv.weight, math.sqrt(2.0))
        nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        modules += [conv, nn.ReLU()]
        channels, height, width = outputs, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    return nn.Sequential(*modules), channels * height * width


def _cells(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return rows, columns and channels of a small grid: the channels are the axis that differs, or the shorter one."""
    a, b, c = shape
    channels_last = a == b or (b != c and c <= a)
    return (a, b, c) if channels_last else (b, c, a)
