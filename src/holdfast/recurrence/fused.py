"""Resets inside torch's fused kernels (oneDNN, cuDNN), which know none.

Before every episode that opens after step 0 goes a blank row, on which an input column of its own is 1, with weights so
large that the gates are exactly 0. Such a row leaves exactly zero state and lets no gradient through. Where
the rows go is `packing`'s business. A second column, 1 on rows below a slot that has ended, opens the forget gate
to exactly 1, so that c is still there at the bottom; h is read from the row of the last step.

Nothing on an inserted row reaches a parameter: x is 0 there, the weights of both columns are constants,
and b_ih rides on a third column that is 1 on real rows only.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from holdfast.recurrence.core import State
from holdfast.recurrence.packing import Packing, pack

SHUT, OPEN = -1e4, 1e4  # sigmoid(+-1e4 + any sane gate input) is exactly 0 or 1 in every float type
NUM_COLUMNS = 3  # real, blank, hold

# cuDNN likes all weights in one block; weights with columns appended never are.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


@dataclass(frozen=True)
class Cell:
    """Per gate, the weight of the column that is 1 on blank rows, and of the one that is 1 on rows that hold."""

    kernel: Literal["lstm", "gru"]
    blank: tuple[float, ...]
    hold: tuple[float, ...]


LSTM = Cell("lstm", blank=(SHUT, SHUT, 0.0, SHUT), hold=(SHUT, OPEN, 0.0, 0.0))  # i, f, g, o
GRU = Cell("gru", blank=(SHUT, SHUT, 0.0), hold=(0.0, OPEN, 0.0))  # r, z, n


def run(cell: Cell, x: Tensor, state: State, first: Tensor, weights: list[Tensor]) -> tuple[Tensor, State]:
    """As Core.forward; the start state is clear where first[0] is set. weights: four per layer."""
    packing = pack(first.cpu().numpy()) if len(first) > 1 else None
    if packing is None:
        y, *final = call_kernel(cell, x, state, weights)
        return y, tuple(final)
    T, B, I = x.shape
    num_layers, _, H = state[0].shape
    layout = Layout.of(packing, x)
    columns = x.new_tensor([cell.blank, cell.hold]).t().repeat_interleave(H, 0)
    rows = Spread.apply(x.reshape(T * B, I), layout)
    finals = []
    for layer in range(num_layers):
        w_ih, w_hh, b_ih, b_hh = weights[4 * layer : 4 * layer + 4]
        if layer:
            rows = torch.cat([rows, layout.flags], 1)
        widened = [torch.cat([w_ih, b_ih[:, None], columns], 1), w_hh, torch.zeros_like(b_ih), b_hh]
        start = tuple(pad_slots(leaf[layer : layer + 1], packing.num_columns) for leaf in state)
        y, _, *cells = call_kernel(cell, rows.view(packing.num_rows, packing.num_columns, -1), start, widened)
        rows = y.reshape(-1, H)
        h = rows.index_select(0, layout.last)[None]
        finals.append((h, *(c.index_select(1, layout.last_column) for c in cells)))
    y = Collect.apply(rows, layout).view(T, B, H)
    return y, tuple(torch.cat(leaf) for leaf in zip(*finals, strict=True))


def call_kernel(cell: Cell, x: Tensor, state: State, weights: list[Tensor]) -> tuple[Tensor, ...]:
    """y and the final leaves of one fused call over all layers in `weights`."""
    options = (True, len(state[0]), 0.0, torch.is_grad_enabled(), False, False)
    if cell.kernel == "lstm":
        return torch._VF.lstm(x, [leaf.contiguous() for leaf in state], weights, *options)
    return torch._VF.gru(x, state[0].contiguous(), weights, *options)


def pad_slots(leaf: Tensor, num_columns: int) -> Tensor:
    """leaf [1, B, H] -> [1, num_columns, H]: columns that no slot opens start from zero."""
    extra = num_columns - leaf.shape[1]
    return torch.cat([leaf, leaf.new_zeros(1, extra, leaf.shape[2])], 1) if extra else leaf


@dataclass(frozen=True)
class Layout:
    """A packing as tensors; cells are numbered row by row."""

    real: Tensor  # [T * B] cell of each step
    last: Tensor  # [B] cell of each slot's last step
    last_column: Tensor  # [B]
    flags: Tensor  # [cells, 3] 1 on real cells | blank cells | cells that hold

    @staticmethod
    def of(packing: Packing, like: Tensor) -> Layout:
        real = packing.rows * packing.num_columns + packing.columns
        flags = np.zeros((packing.num_rows * packing.num_columns, NUM_COLUMNS), np.float32)
        flags[:, 1] = 1.0
        flags[real.ravel()] = (1.0, 0.0, 0.0)
        holding = flags.reshape(packing.num_rows, packing.num_columns, NUM_COLUMNS)
        holding[len(packing.rows) :, np.flatnonzero(packing.unbroken)] = (0.0, 0.0, 1.0)
        device = like.device
        return Layout(
            torch.from_numpy(real.ravel()).to(device),
            torch.from_numpy(real[-1]).to(device),
            torch.from_numpy(packing.columns[-1].copy()).to(device),
            torch.from_numpy(flags).to(like),
        )


class Spread(torch.autograd.Function):
    """x [T * B, I] -> [cells, I + 3]: each step in its cell, zeros in the others, the flags behind."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: Layout) -> Tensor:
        ctx.real = layout.real
        out = x.new_zeros(len(layout.flags), x.shape[1] + NUM_COLUMNS)
        out[:, :-NUM_COLUMNS].index_copy_(0, layout.real, x)
        out[:, -NUM_COLUMNS:] = layout.flags
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad[:, :-NUM_COLUMNS].index_select(0, ctx.real), None


class Collect(torch.autograd.Function):
    """[cells, H] -> [T * B, H], the real ones. Its gradient is a copy; that of index_select adds row by row."""

    @staticmethod
    def forward(ctx: Any, cells: Tensor, layout: Layout) -> Tensor:
        ctx.real, ctx.shape = layout.real, cells.shape
        return cells.index_select(0, layout.real)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.new_zeros(ctx.shape).index_copy_(0, ctx.real, grad), None
