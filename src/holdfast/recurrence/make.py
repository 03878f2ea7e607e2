"""Build a recurrent core by the name it has in the settings."""

from __future__ import annotations

from holdfast.config.registry import CELLS
from holdfast.recurrence.core import Core


def make_core(kind: str, input_size: int, hidden_size: int, num_layers: int) -> Core:
    """The core registered as `kind`, such as "lstm"; "none" has no memory."""
    if kind not in CELLS:
        raise ValueError(f"unknown core {kind!r}; registered are {', '.join(CELLS)}.")
    return CELLS[kind](input_size, hidden_size, num_layers)
