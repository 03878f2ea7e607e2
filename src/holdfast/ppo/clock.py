"""How far each slot's rollout has been written: catches a row written twice, skipped, or read too early."""

from __future__ import annotations

import numpy as np
from torch import Tensor

Slots = slice | Tensor | np.ndarray  # slot numbers, or a range of them


class RolloutClock:
    """Counts per slot: rows arrived, rows acted on, start states kept. A few integer comparisons per call."""

    def __init__(self, num_slots: int, num_rows: int, state_rows: dict[int, int]):
        self.num_rows = num_rows
        self._state_rows = state_rows
        self._arrived = np.zeros(num_slots, np.int64)
        self._acted = np.zeros(num_slots, np.int64)
        self._states = np.zeros(num_slots, np.int64)
        self.complete = False

    def restart(self) -> None:
        for count in (self._arrived, self._acted, self._states):
            count[:] = 0
        self.complete = False

    def arrive(self, t: int, slots: Slots) -> None:
        index = _as_index(slots)
        self._expect(self._acted, index, t, f"arrival {t}", "actions")
        self._expect(self._arrived, index, t, f"arrival {t}", "arrivals")
        if t > self.num_rows:
            raise RuntimeError(
                f"arrival {t} is past the last row {self.num_rows}: carry over to the next rollout first"
            )
        self._arrived[index] = t + 1

    def keep_state(self, t: int, slots: Slots) -> None:
        if t not in self._state_rows:
            raise RuntimeError(f"no start state is kept at row {t}; rows that have one: {list(self._state_rows)}")
        index = _as_index(slots)
        self._expect(self._states, index, self._state_rows[t], f"start state of row {t}", "start states")
        self._states[index] += 1

    def act(self, t: int, slots: Slots) -> None:
        index = _as_index(slots)
        self._expect(self._arrived, index, t + 1, f"action {t}", "arrivals")
        self._expect(self._acted, index, t, f"action {t}", "actions")
        if t >= self.num_rows:
            raise RuntimeError(f"action {t} is past the last acting row {self.num_rows - 1}: its outcome has no row")
        if t in self._state_rows:
            self._expect(self._states, index, self._state_rows[t] + 1, f"action {t}", "start states")
        self._acted[index] = t + 1

    def require_outcome(self, t: int, slots: Slots, what: str) -> None:
        if t < 1:
            raise RuntimeError(f"{what} at row {t}: row 0 ends no transition of this rollout")
        self._expect(self._arrived, _as_index(slots), t + 1, f"{what} at row {t}", "arrivals")

    def finish(self) -> None:
        if self.complete:
            raise RuntimeError("bootstrap values are already written for this rollout")
        everyone = slice(None)
        self._expect(self._arrived, everyone, self.num_rows + 1, "the bootstrap", "arrivals")
        self.complete = True

    def require_complete(self, what: str) -> None:
        if not self.complete:
            raise RuntimeError(
                f"cannot {what}: the rollout is incomplete. Arrivals written per slot: "
                f"{_span(self._arrived)} of {self.num_rows + 1}, actions: {_span(self._acted)} of "
                f"{self.num_rows}; bootstrap values are written last"
            )

    @staticmethod
    def _expect(count: np.ndarray, index: slice | np.ndarray, wanted: int, what: str, things: str) -> None:
        wrong = count[index] != wanted
        if wrong.any():
            slot = int(np.arange(len(count))[index][wrong][0])
            raise RuntimeError(
                f"{what} of slot {slot} is out of order: it needs {wanted} {things} written before it, "
                f"there are {count[slot]}"
            )


def _as_index(slots: Slots) -> slice | np.ndarray:
    """Slots for numpy; a slot named twice in one call would be written twice."""
    if isinstance(slots, slice):
        return slots
    index = slots.cpu().numpy() if isinstance(slots, Tensor) else slots
    if index.dtype.kind not in "iu":
        raise TypeError(f"slots must be slot numbers or a slice, got {slots.dtype}")
    if len(np.unique(index)) != len(index):
        raise RuntimeError(f"a slot is named twice in one call: {index.tolist()}")
    return index


def _span(count: np.ndarray) -> str:
    low, high = int(count.min()), int(count.max())
    return str(low) if low == high else f"{low} to {high}"
