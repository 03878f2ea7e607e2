"""Recurrent components. They declare the shapes of their state; the policy keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

from holdfast.policies.components.component import BuildContext, Component, Params, Shape, Size
from holdfast.recurrence import make_core


class CoreComponent(Component, abstract=True):
    """x [T, B, I], its part of the state, first [T, B] -> y [T, B, H], state after the last step."""

    cell: ClassVar[str]

    class Params(Params):
        hidden_size: Size = 128
        num_layers: Size = 2

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        self.layer = make_core(self.cell, inputs[0].sizes[0], params.hidden_size, params.num_layers)
        return Shape("vector", (params.hidden_size,))

    @property
    def state_shapes(self) -> tuple[tuple[int, int], ...]:
        return self.layer.state_shapes


@cache
def core_component(cell: str, name: str) -> type[CoreComponent]:
    """The component of a registered cell."""

    class OfCell(CoreComponent, abstract=True):
        pass

    OfCell.cell, OfCell.__name__, OfCell.__qualname__ = cell, name, name
    return OfCell
