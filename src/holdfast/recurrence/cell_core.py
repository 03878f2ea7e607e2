"""CellCore: use a recurrent cell, such as nn.LSTMCell or a custom module, as a core."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.recurrence.core import Core, State


class CellCore(Core):
    """Run `cell(x [B, I], state) -> state` step by step, and reset the state at every episode start.

    With num_leaves=1 the cell's state is a tensor [B, H], as in nn.GRUCell. With more, it is a tuple of `num_leaves` such
    tensors, as in nn.LSTMCell. The first state tensor is also the core's output.
    """

    def __init__(self, cell: nn.Module, input_size: int, hidden_size: int, num_leaves: int = 1):
        super().__init__(input_size, hidden_size, num_layers=1)
        self.cell = cell
        self.num_leaves = num_leaves

    def forward(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        first = self.check(x, state, first).unsqueeze(-1)
        leaves = tuple(leaf[0] for leaf in state)
        outputs = []
        for x_t, first_t in zip(x.unbind(0), first.unbind(0), strict=True):
            leaves = tuple(leaf.masked_fill(first_t, 0.0) for leaf in leaves)
            new = self.cell(x_t, leaves if self.num_leaves > 1 else leaves[0])
            leaves = (new,) if isinstance(new, Tensor) else tuple(new)
            outputs.append(leaves[0])
        return torch.stack(outputs), tuple(leaf.unsqueeze(0) for leaf in leaves)
