"""Cells over [T, B] with resets, and the table that keeps their state between calls."""

from holdfast.recurrence.core import Core, Memoryless, State
from holdfast.recurrence.gru import GRU
from holdfast.recurrence.lstm import LSTM
from holdfast.recurrence.memory import Memory
from holdfast.recurrence.oracle import masked_loop

CORES: dict[str, type[Core]] = {"lstm": LSTM, "gru": GRU, "none": Memoryless}


def make_core(kind: str, input_size: int, hidden_size: int, num_layers: int) -> Core:
    """lstm, gru, or none (memoryless)."""
    return CORES[kind](input_size, hidden_size, num_layers)


__all__ = ["CORES", "GRU", "LSTM", "Core", "Memory", "Memoryless", "State", "make_core", "masked_loop"]
