"""Episode resets inside torch's fused kernels (oneDNN, cuDNN), which have no reset input.

A reset row (`blank`) is inserted before every episode that starts after step 0. An extra input column is 1 on reset rows.
The weights of this column are so large that the gates are exactly 0: the row sets the state to exactly zero and passes no
gradient. A second column (`hold`) is 1 on rows below a slot's last step and opens the forget gate to exactly 1, so that c is
kept until the last row. h is read from the row of the last step. The `packing` module decides where the rows are placed.

Inserted rows add nothing to parameter gradients: x is 0 on these rows, the weights of both columns are constants, and b_ih
is moved to a third column that is 1 on real rows only. x must not contain NaN, because 0 * NaN would not reset the state.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast.recurrence.core import State
from holdfast.recurrence.packing import Packing, pack

# sigmoid(+-1e4 + a gate input of usual size) is exactly 0 or 1, and 1e4 fits every float dtype
SHUT, OPEN = -1e4, 1e4

# step_lstm is used for up to this many slots. Its time relative to the kernel (one thread): 0.57x for 8 slots of 64 units,
# 0.84x for 24 slots of 128 units, 1.03x for 64 slots of 128 units.
FEW_SLOTS = 32

# cuDNN prefers all weights in one block, which is impossible with appended columns.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


@dataclass(frozen=True)
class Cell:
    """A kernel, and the weights (one per gate) of two input columns: `blank` resets the state, `hold` keeps it."""

    kernel: Literal["lstm", "gru"]
    blank: tuple[float, ...]
    hold: tuple[float, ...]

    @property
    def num_gates(self) -> int:
        return len(self.blank)


LSTM_CELL = Cell("lstm", blank=(SHUT, SHUT, 0.0, SHUT), hold=(SHUT, OPEN, 0.0, 0.0))  # i, f, g, o
GRU_CELL = Cell("gru", blank=(SHUT, SHUT, 0.0), hold=(0.0, OPEN, 0.0))  # r, z, n


def unroll(cell: Cell, x: Tensor, state: State, first: Tensor, weights: list[Tensor]) -> tuple[Tensor, State]:
    """Run all layers; arguments and result as in Core.forward. weights: from Recurrent.weights().

    `state` must already be zero for the slots whose `first[0]` flag is set.
    """
    packing = pack(first.cpu().numpy()) if len(first) > 1 else None
    is_step = len(first) == 1 and not torch.is_grad_enabled() and not x.is_cuda
    if is_step and cell is LSTM_CELL and first.shape[1] <= FEW_SLOTS:
        return step_lstm(x, state, weights)
    if packing is None and cell is LSTM_CELL and not torch.is_grad_enabled():
        # Without grad mode oneDNN uses another kernel, whose results differ more from those in learning (1.8e-6 instead of
        # 2.4e-7). The inputs are detached, so no graph is recorded.
        with torch.enable_grad():
            y, *final = call_kernel(cell, x.detach(), detached(state), list(detached(weights)))
            return y, tuple(final)
    if packing is None:
        y, *final = call_kernel(cell, x, state, weights)
        return y, tuple(final)
    T, B, _ = x.shape
    num_layers, _, H = state[0].shape
    layout = Layout.of(packing, x)
    columns = flag_weights(cell, H, x.dtype, x.device)
    rows: Tensor = Rearrange.apply(x.reshape(T * B, -1), layout.spread, layout.collect)  # pyright: ignore[reportAssignmentType]
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
    y: Tensor = Rearrange.apply(rows, layout.collect, layout.spread)  # pyright: ignore[reportAssignmentType]
    return y.view(T, B, H), tuple(torch.cat(leaf) for leaf in zip(*finals, strict=True))


@cache
def flag_weights(cell: Cell, hidden: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the weights [gates * hidden, 2] of the columns `blank` and `hold`."""
    return torch.tensor([cell.blank, cell.hold], dtype=dtype, device=device).t().repeat_interleave(hidden, 0)


def step_lstm(x: Tensor, state: State, weights: list[Tensor]) -> tuple[Tensor, State]:
    """Run one acting step x [1, B, I] without the fused kernel.

    For few slots the kernel spends most of its time on reordering weights.
    """
    y, h_out, c_out = x[0], [], []
    for layer, (h, c) in enumerate(zip(*(leaf.unbind(0) for leaf in state), strict=True)):
        w_ih, w_hh, b_ih, b_hh = weights[4 * layer : 4 * layer + 4]
        gates = torch.addmm(b_ih, y, w_ih.t()).addmm_(h, w_hh.t()).add_(b_hh)
        candidate = gates.chunk(4, 1)[2].tanh()
        i, f, _, o = gates.sigmoid_().chunk(4, 1)
        c = (f * c).addcmul_(i, candidate)
        y = o * c.tanh()
        h_out.append(y)
        c_out.append(c)
    return y.unsqueeze(0), (torch.stack(h_out), torch.stack(c_out))


def call_kernel(cell: Cell, x: Tensor, state: State, weights: list[Tensor]) -> tuple[Tensor, ...]:
    """Call torch's fused kernel for all layers in `weights`, without resets; return y and the final state."""
    options = (True, len(state[0]), 0.0, torch.is_grad_enabled(), False, False)
    if cell.kernel == "lstm":
        return torch._VF.lstm(x, [leaf.contiguous() for leaf in state], weights, *options)
    return torch._VF.gru(x, state[0].contiguous(), weights, *options)


def detached(tensors: Sequence[Tensor]) -> State:
    return tuple(tensor.detach() for tensor in tensors)


def add_columns(leaf: Tensor, extra: int) -> Tensor:
    """Append `extra` zero columns to a state tensor [1, B, H]; return [1, B + extra, H]."""
    return torch.cat([leaf, leaf.new_zeros(1, extra, leaf.shape[2])], 1) if extra else leaf


@dataclass(frozen=True)
class Layout:
    """A Packing as index tensors. A step's index is t * B + b; a cell's index is row * num_columns + column."""

    cell_of_step: Tensor  # [steps]
    step_of_cell: Tensor  # [cells], 0 for inserted cells
    inserted: Tensor  # indices of the cells without a step
    last: Tensor  # [B], the cell of each slot's last step
    last_column: Tensor  # [B], the column of that cell
    flags: Tensor  # [cells, 3], 0 or 1: the cell has a step, resets the state, keeps the state

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
        indices = (cell_of_step, step_of_cell, inserted, cells[-1], packing.columns[-1])
        tensors = [torch.from_numpy(index).to(like.device) for index in indices]
        return Layout(*tensors, flags=torch.from_numpy(flags).to(like))

    def spread(self, steps: Tensor) -> Tensor:
        """Copy the values of each step [steps, N] to its cell; return [cells, N], with zeros in inserted cells.

        Uses index_select, which is four times as fast as index_copy_.
        """
        return steps.index_select(0, self.step_of_cell).index_fill_(0, self.inserted, 0.0)

    def collect(self, cells: Tensor) -> Tensor:
        """Return the values of each step's cell: [cells, N] -> [steps, N]."""
        return cells.index_select(0, self.cell_of_step)


class Rearrange(torch.autograd.Function):
    """Apply Layout.spread or Layout.collect; the backward pass of each is the other.

    The backward pass of index_select would be slower, because it adds row by row.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, move: Callable[[Tensor], Tensor], move_back: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.move_back = move_back
        return move(x)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        return ctx.move_back(grad_outputs[0]), None, None
