"""Components by the `type` they have in an agent's file, which can name no other class.

Subclasses of `Component` register themselves when they are defined. Every recurrent cell is a component, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.config.registry import CELLS
from holdfast.policies.components import heads, layers, observations  # noqa: F401  (their classes register)
from holdfast.policies.components.component import REGISTERED, Component
from holdfast.policies.components.cores import core_component


def cell_types() -> dict[str, str]:
    """The component type of each cell: {"lstm": "LSTM"}."""
    return {cell: kind.__name__ for cell, kind in CELLS.items()}


class Components(Mapping[str, type[Component]]):
    """All registered components, and one for each registered cell."""

    def __getitem__(self, name: str) -> type[Component]:
        cell = next((cell for cell, type_name in cell_types().items() if type_name == name), None)
        return REGISTERED[name] if cell is None else core_component(cell, name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*REGISTERED, *cell_types().values()}))

    def __len__(self) -> int:
        return len({*REGISTERED, *cell_types().values()})


COMPONENTS = Components()
