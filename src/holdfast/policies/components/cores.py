"""Recurrent components, one for each registered cell, and the list of all components.

They declare the shapes of their state; the policy keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

from holdfast.config.registry import CELLS
from holdfast.policies.components import heads, layers, observations  # noqa: F401  (their classes register)
from holdfast.policies.components.component import REGISTERED, BuildContext, Component, Params, Shape, Size
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


def cell_types() -> dict[str, str]:
    """The component type of each cell: {"lstm": "LSTM"}."""
    return {cell: kind.__name__ for cell, kind in CELLS.items()}


def component_types() -> dict[str, type[Component]]:
    """Components by the `type` they have in an agent's file, which can name no other class."""
    return REGISTERED | {name: core_component(cell, name) for cell, name in cell_types().items()}


@cache
def core_component(cell: str, name: str) -> type[CoreComponent]:
    """The component of a registered cell."""
    return type(name, (CoreComponent,), {"cell": cell}, abstract=True)
