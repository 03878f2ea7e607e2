"""LSTM and GRU over whole segments, with the same parameter names and shapes as torch.nn.LSTM and torch.nn.GRU."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from holdfast.config.registry import CELLS
from holdfast.recurrence import fused, gru_cpu
from holdfast.recurrence.core import Core, State
from holdfast.recurrence.masked_loop import gru_step, lstm_step, masked_loop


class Recurrent(Core):
    """Base class for LSTM and GRU. State dicts are interchangeable with those of torch.nn.LSTM and torch.nn.GRU."""

    cell: ClassVar[fused.Cell]

    def __init__(self, input_size: int, hidden_size: int, num_layers: int):
        super().__init__(input_size, hidden_size, num_layers)
        rows = self.cell.num_gates * hidden_size
        for layer in range(num_layers):
            for name, *shape in (
                ("weight_ih", rows, hidden_size if layer else input_size),
                ("weight_hh", rows, hidden_size),
                ("bias_ih", rows),
                ("bias_hh", rows),
            ):
                self.register_parameter(f"{name}_l{layer}", nn.Parameter(torch.empty(shape)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the weights of each gate orthogonally, and biases to 0.

        If the stacked matrix of all gates were orthogonal, each gate would get only a part of its norm: two layers would
        shrink the signal to about a hundredth, and a new policy would hardly react to observations.
        """
        for parameter in self.parameters():
            if parameter.dim() == 1:
                nn.init.zeros_(parameter)
            else:
                for gate in parameter.data.chunk(self.cell.num_gates):
                    nn.init.orthogonal_(gate)

    def weights(self) -> list[Tensor]:
        """Return w_ih, w_hh, b_ih and b_hh of every layer, in one flat list that starts with the first layer."""
        return [p for p in self._parameters.values() if p is not None]

    def layer_weights(self, layer: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        w_ih, w_hh, b_ih, b_hh = self.weights()[4 * layer : 4 * layer + 4]
        return (w_ih, b_ih), (w_hh, b_hh)

    # Not for torch.compile: the layout depends on the data, and the kernels are already compiled.
    @torch.compiler.disable
    def forward(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:  # pyright: ignore
        first = self.check(x, state, first)
        if torch.compiler.is_exporting():
            return masked_loop(self, x, state, first)
        opening = first[0].nonzero().squeeze(1)
        if len(opening):
            state = tuple(leaf.index_fill(1, opening, 0.0) for leaf in state)
        return self.unroll(x, state, first)

    def unroll(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        """Same as forward(), for a state that is already zero for the slots whose `first[0]` flag is set."""
        return fused.unroll(self.cell, x, state, first, self.weights())


@CELLS.register("lstm")
class LSTM(Recurrent):
    """LSTM with state (h, c). Forget gates start open (bias 1), so that a new cell retains its state; other biases are 0."""

    cell = fused.LSTM_CELL
    step = staticmethod(lstm_step)
    num_leaves = 2

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for name, parameter in self.named_parameters():
            if name.startswith("bias_ih"):
                nn.init.ones_(parameter.data[self.hidden_size : 2 * self.hidden_size])

    def spread_forget_biases(self) -> None:
        """Start with biases of the forget gates from 1 to 5, so that units forget between 1/4 and 1/150 of their state per step.

        Some units then have a long memory before training, as in MinGRU. MiniGrid-MemoryS7 is learned with this, and with
        biases of 1 it is not.
        """
        for name, parameter in self.named_parameters():
            if name.startswith("bias_ih"):
                parameter.data[self.hidden_size : 2 * self.hidden_size] = torch.linspace(1.0, 5.0, self.hidden_size)


@CELLS.register("gru")
class GRU(Recurrent):
    """GRU with state (h,)."""

    cell = fused.GRU_CELL
    step = staticmethod(gru_step)

    def unroll(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        # torch has a fused GRU on CUDA only; elsewhere torch's loop over steps is slower than gru_cpu
        if x.is_cuda or len(x) == 1:
            return super().unroll(x, state, first)
        return gru_cpu.unroll_gru(x, state, first, self.weights())
