"""Recurrent cores that run over [T, B] and reset at episode starts, and Memory, which stores their state between calls."""

from holdfast.recurrence.cell_core import CellCore
from holdfast.recurrence.core import Core, Memoryless, State, make_core
from holdfast.recurrence.masked_loop import masked_loop
from holdfast.recurrence.memory import Memory
from holdfast.recurrence.mingru import MinGRU
from holdfast.recurrence.recurrent import GRU, LSTM

__all__ = ["GRU", "LSTM", "CellCore", "Core", "Memory", "Memoryless", "MinGRU", "State", "make_core", "masked_loop"]
