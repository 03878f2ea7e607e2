"""Resets inside torch's fused kernels (oneDNN, cuDNN), which know none.

Before every episode that opens after step 0 goes a blank row, on which an input column of its own is 1, with
weights so large that the gates are exactly 0. Such a row leaves exactly zero state and lets no gradient through.
A second column, 1 on rows below a slot that has ended, opens the forget gate to exactly 1, so that c is still
there at the bottom; h is read from the row of the last step. Where the rows go is `packing`'s business.

Nothing on an inserted row reaches a parameter: x is 0 there, the weights of both columns are constants, and
b_ih rides on a third column that is 1 on real rows only. What x must not be is NaN: 0 * NaN is no reset.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast.recurrence.core import State
from holdfast.recurrence.packing import Packing, pack

# sigmoid(+-1e4 + any sane gate input) is exactly 0 or 1, and 1e4 fits every float type
SHUT, OPEN = -1e4, 1e4

# cuDNN likes all weights in one block; weights with columns appended never are.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


@dataclass(frozen=True)
class Cell:
    """Weights, one per gate, of the column that is 1 on blank rows and of the one that is 1 on rows that hold."""

    kernel: Literal["lstm", "gru"]
    blank: tuple[float, ...]
    hold: tuple[float, ...]

    @property
    def num_gates(self) -> int:
        return len(self.blank)


LSTM_CELL = Cell("lstm", blank=(SHUT, SHUT, 0.0, SHUT), hold=(SHUT, OPEN, 0.0, 0.0))  # i, f, g, o
GRU_CELL = Cell("gru", blank=(SHUT, SHUT, 0.0), hold=(0.0, OPEN, 0.0))  # r, z, n


def unroll(cell: Cell, x: Tensor, state: State, first: Tensor, weights: list[Tensor]) -> tuple[Tensor, State]:
    """As Core.forward, for a start state that is zero where first[0] is set. weights: four per layer."""
    packing = pack(first.cpu().numpy()) if len(first) > 1 else None
    if packing is None and cell is LSTM_CELL and not torch.is_grad_enabled():
        # Without grad mode oneDNN takes another kernel, four times as far from the one that learns (1.8e-6 instead of
        # 2.4e-7): acting would drift from learning. With nothing that requires grad, grad mode records no graph.
        with torch.enable_grad():
            y, *final = call_kernel(cell, x.detach(), detached(state), list(detached(weights)))
            return y, tuple(final)
    if packing is None:
        y, *final = call_kernel(cell, x, state, weights)
        return y, tuple(final)
    T, B, _ = x.shape
    num_layers, _, H = state[0].shape
    layout = Layout.of(packing, x)
    columns = x.new_tensor([cell.blank, cell.hold]).t().repeat_interleave(H, 0)
    rows: Tensor = Spread.apply(x.reshape(T * B, -1), layout)  # pyright: ignore[reportAssignmentType]
    finals = []
    for layer in range(num_layers):
        w_ih, w_hh, b_ih, b_hh = weights[4 * layer : 4 * layer + 4]
        widened = [torch.cat([w_ih, b_ih[:, None], columns], 1), w_hh, torch.zeros_like(b_ih), b_hh]
        flagged = torch.cat([rows, layout.flags], 1).view(packing.num_rows, packing.num_columns, -1)
        start = tuple(add_columns(leaf[layer : layer + 1], packing.num_columns - B) for leaf in state)
        y, _, *cells = call_kernel(cell, flagged, start, widened)
        rows = y.reshape(-1, H)
        h = rows.index_select(0, layout.last)[None]
        finals.append((h, *(c.index_select(1, layout.last_column) for c in cells)))
    y: Tensor = Collect.apply(rows, layout)  # pyright: ignore[reportAssignmentType]
    return y.view(T, B, H), tuple(torch.cat(leaf) for leaf in zip(*finals, strict=True))


def call_kernel(cell: Cell, x: Tensor, state: State, weights: list[Tensor]) -> tuple[Tensor, ...]:
    """y and the final leaves of one call over all layers in `weights`, resets ignored."""
    options = (True, len(state[0]), 0.0, torch.is_grad_enabled(), False, False)
    if cell.kernel == "lstm":
        return torch._VF.lstm(x, [leaf.contiguous() for leaf in state], weights, *options)
    return torch._VF.gru(x, state[0].contiguous(), weights, *options)


def detached(tensors: Sequence[Tensor]) -> State:
    return tuple(tensor.detach() for tensor in tensors)


def add_columns(leaf: Tensor, extra: int) -> Tensor:
    """leaf [1, B, H] -> [1, B + extra, H]: columns that no slot opens start from zero."""
    return torch.cat([leaf, leaf.new_zeros(1, extra, leaf.shape[2])], 1) if extra else leaf


@dataclass(frozen=True)
class Layout:
    """A packing as tensors. Steps are numbered t * B + b, cells row * num_columns + column."""

    cell_of_step: Tensor  # [steps]
    step_of_cell: Tensor  # [cells], 0 on inserted cells
    inserted: Tensor  # the cells without a step
    flags: Tensor  # [cells, 3]: 1 on real cells | on blank cells | on cells that hold
    last: Tensor  # [B] cell of each slot's last step
    last_column: Tensor  # [B]

    @staticmethod
    def of(packing: Packing, like: Tensor) -> Layout:
        num_cells = packing.num_rows * packing.num_columns
        cells = packing.rows * packing.num_columns + packing.columns
        cell_of_step = cells.ravel()
        step_of_cell = np.zeros(num_cells, np.int64)
        step_of_cell[cell_of_step] = np.arange(len(cell_of_step))
        flags = np.zeros((num_cells, 3), np.float32)
        flags[:, 1] = 1.0
        flags[cell_of_step] = (1.0, 0.0, 0.0)
        inserted = np.flatnonzero(flags[:, 1])
        below = flags.reshape(packing.num_rows, packing.num_columns, 3)[len(packing.rows) :]
        below[:, np.flatnonzero(packing.unbroken)] = (0.0, 0.0, 1.0)
        device = like.device
        return Layout(
            torch.from_numpy(cell_of_step).to(device),
            torch.from_numpy(step_of_cell).to(device),
            torch.from_numpy(inserted).to(device),
            torch.from_numpy(flags).to(like),
            torch.from_numpy(cells[-1]).to(device),
            torch.from_numpy(packing.columns[-1]).to(device),
        )

    def spread(self, steps: Tensor) -> Tensor:
        """[steps, N] -> [cells, N], zero on inserted cells. Picking is four times as fast as index_copy_."""
        return steps.index_select(0, self.step_of_cell).index_fill_(0, self.inserted, 0.0)

    def collect(self, cells: Tensor) -> Tensor:
        """[cells, N] -> [steps, N]."""
        return cells.index_select(0, self.cell_of_step)


class Spread(torch.autograd.Function):
    """Layout.spread, whose gradient collects."""

    @staticmethod
    def forward(ctx: Any, steps: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        return layout.spread(steps)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        return ctx.layout.collect(grad_outputs[0]), None


class Collect(torch.autograd.Function):
    """Layout.collect, whose gradient spreads; that of index_select would add row by row."""

    @staticmethod
    def forward(ctx: Any, cells: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        return layout.collect(cells)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        return ctx.layout.spread(grad_outputs[0]), None
