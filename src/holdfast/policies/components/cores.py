"""Components that remember. They declare their state; the policy keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from holdfast.policies.components.component import Component, Entry, Params, Place, Shape
from holdfast.policies.components.layers import Size
from holdfast.recurrence import State, make_core


class CoreComponent(Component):
    """x [T, B, I], its leaves of the state, first [T, B] -> y [T, B, H], the leaves after the last step."""

    cell: ClassVar[str]

    class Params(Params):
        hidden_size: Size = 128
        num_layers: Size = 2

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        self.layer = make_core(self.cell, inputs[0].sizes[0], params.hidden_size, params.num_layers)
        self.out = Shape("vector", (params.hidden_size,))

    @property
    def state_shapes(self) -> tuple[tuple[int, int], ...]:
        return self.layer.state_shapes

    def forward(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        return self.layer(x, state, first)


class LSTM(CoreComponent):
    cell = "lstm"


class GRU(CoreComponent):
    cell = "gru"


class MinGRU(CoreComponent):
    cell = "mingru"


class Memoryless(CoreComponent):
    """A control: layers of the same width that remember nothing."""

    cell = "none"
