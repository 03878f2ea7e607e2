"""Recurrent components, one for each registered cell, and the list of all components.

A recurrent component declares the shapes of its state; the policy stores the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

from holdfast.config.registry import CELLS
from holdfast.policies.components import heads, layers, observations  # noqa: F401  (importing them registers their classes)
from holdfast.policies.components.component import REGISTERED, BuildContext, Component, Params, Shape, Size
from holdfast.recurrence import make_core


class CoreComponent(Component, abstract=True):
    """A recurrent core: x [T, B, I], its state, `first` flags [T, B] -> y [T, B, H], state after the last step."""

    cell: ClassVar[str]

    class Params(Params):
        hidden_size: Size = 128
        num_layers: Size = 2

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        self.layer = make_core(self.cell, inputs[0].sizes[0], params.hidden_size, params.num_layers)
        return Shape("vector", (params.hidden_size,))


def cell_types() -> dict[str, str]:
    """Return the component type for each cell name, such as {"lstm": "LSTM"}."""
    return {cell: kind.__name__ for cell, kind in CELLS.items()}


def component_types() -> dict[str, type[Component]]:
    """Return all component classes by the `type` used in agent files. Agent files cannot use any other class."""
    return REGISTERED | {name: core_component(cell, name) for cell, name in cell_types().items()}


@cache
def core_component(cell: str, name: str) -> type[CoreComponent]:
    """Return the component class for a registered cell."""
    return type(name, (CoreComponent,), {"cell": cell}, abstract=True)
