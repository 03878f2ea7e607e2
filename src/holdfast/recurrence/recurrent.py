"""LSTM and GRU over whole segments, parameters laid out as in torch.nn."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from holdfast.recurrence import fused
from holdfast.recurrence.core import Core, State
from holdfast.recurrence.sweep import sweep_gru


class Recurrent(Core):
    """Stacked gated layers. state_dicts interchange with torch.nn.LSTM / torch.nn.GRU of the same sizes."""

    cell: ClassVar[fused.Cell]
    num_leaves: ClassVar[int]
    first_bias: ClassVar[float]

    def __init__(self, input_size: int, hidden_size: int, num_layers: int):
        super().__init__(input_size, hidden_size, num_layers)
        rows = len(self.cell.blank) * hidden_size
        for layer in range(num_layers):
            self.register_parameter(
                f"weight_ih_l{layer}", nn.Parameter(torch.empty(rows, hidden_size if layer else input_size))
            )
            self.register_parameter(f"weight_hh_l{layer}", nn.Parameter(torch.empty(rows, hidden_size)))
            self.register_parameter(f"bias_ih_l{layer}", nn.Parameter(torch.empty(rows)))
            self.register_parameter(f"bias_hh_l{layer}", nn.Parameter(torch.empty(rows)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights orthogonal, biases the constant of the cell."""
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.orthogonal_(parameter)
            else:
                nn.init.constant_(parameter, self.first_bias)

    @property
    def state_shapes(self) -> tuple[tuple[int, int], ...]:
        return ((self.num_layers, self.hidden_size),) * self.num_leaves

    def weights(self) -> list[Tensor]:
        """w_ih, w_hh, b_ih, b_hh of each layer in turn."""
        return [p for p in self._parameters.values() if p is not None]

    # Not for the compiler: the layout depends on the data, and the kernels are compiled already.
    @torch.compiler.disable
    def forward(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        first = self.check(x, state, first)
        slots = first[0].nonzero().squeeze(1)
        if len(slots):
            state = tuple(leaf.index_fill(1, slots, 0.0) for leaf in state)
        return self.run(x, state, first)

    def run(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        """The same for a start state that is already clear where first[0] is set."""
        return fused.run(self.cell, x, state, first, self.weights())


class LSTM(Recurrent):
    """State (h, c). Biases start at 1, so that a fresh cell keeps what it has."""

    cell = fused.LSTM_CELL
    num_leaves = 2
    first_bias = 1.0


class GRU(Recurrent):
    """State (h,)."""

    cell = fused.GRU_CELL
    num_leaves = 1
    first_bias = 0.0

    def run(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        # torch has a fused GRU on CUDA only; elsewhere its own loop is slower than ours, resets or not
        return super().run(x, state, first) if x.is_cuda else sweep_gru(x, state, first, self.weights())
