"""Cores by the name they have in the settings."""

from __future__ import annotations

from holdfast.recurrence.core import Core, Memoryless
from holdfast.recurrence.mingru import MinGRU
from holdfast.recurrence.recurrent import GRU, LSTM

CORES: dict[str, type[Core]] = {"lstm": LSTM, "gru": GRU, "mingru": MinGRU, "none": Memoryless}


def make_core(kind: str, input_size: int, hidden_size: int, num_layers: int) -> Core:
    """kind: "lstm", "gru", "mingru", or "none" for the memoryless control."""
    if kind not in CORES:
        raise ValueError(f"core {kind!r} is not known; there are {', '.join(CORES)}.")
    return CORES[kind](input_size, hidden_size, num_layers)
