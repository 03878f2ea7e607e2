"""What LSTM and GRU share: parameters laid out as in torch.nn, and the choice between the two ways to run them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from holdfast.recurrence import fused
from holdfast.recurrence.core import Core, State
from holdfast.recurrence.resets import Resets, clear_start


class Recurrent(Core):
    """Stacked gated layers. state_dicts interchange with torch.nn.LSTM / torch.nn.GRU of the same sizes."""

    num_gates: ClassVar[int]
    num_leaves: ClassVar[int]
    first_bias: ClassVar[float]
    fused_cell: ClassVar[fused.Cell]

    def __init__(self, input_size: int, hidden_size: int, num_layers: int):
        super().__init__(input_size, hidden_size, num_layers)
        rows = self.num_gates * hidden_size
        for layer in range(num_layers):
            for name, shape in (
                ("weight_ih", (rows, hidden_size if layer else input_size)),
                ("weight_hh", (rows, hidden_size)),
                ("bias_ih", (rows,)),
                ("bias_hh", (rows,)),
            ):
                self.register_parameter(f"{name}_l{layer}", nn.Parameter(torch.empty(shape)))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Weights orthogonal; every bias the cell's own constant."""
        for name, parameter in self.named_parameters():
            if name.startswith("weight"):
                nn.init.orthogonal_(parameter)
            else:
                parameter.fill_(self.first_bias)

    @property
    def state_shapes(self) -> tuple[tuple[int, int], ...]:
        return ((self.num_layers, self.hidden_size),) * self.num_leaves

    def layer_weights(self, layer: int) -> list[Tensor]:
        """w_ih, w_hh, b_ih, b_hh of one layer."""
        return list(self._parameters.values())[4 * layer : 4 * layer + 4]  # type: ignore[return-value]

    @staticmethod
    def sweep(x: Tensor, leaves: State, resets: Resets, weights: list[Tensor]) -> State:
        """One layer by our own loop: x [T, B, I], leaves [B, H] -> y [T, B, H] and the final leaves."""
        raise NotImplementedError

    def fused_pays(self, x): return False

    # A graph of thousands of tiny steps gains nothing from the compiler and costs it minutes.
    @torch.compiler.disable
    def forward(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        first = self.check(x, state, first)
        state = clear_start(state, first)
        if self.fused_pays(x):
            return fused.run(self.fused_cell, x, state, first, list(self._parameters.values()))
        resets = Resets(first)
        finals = []
        for layer in range(self.num_layers):
            leaves = tuple(leaf[layer] for leaf in state)
            x, *leaves = self.sweep(x, leaves, resets, self.layer_weights(layer))
            finals.append(leaves)
        return x, tuple(torch.stack(leaf) for leaf in zip(*finals, strict=True))
