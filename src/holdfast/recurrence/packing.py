"""Arrange the episodes of a segment in columns, with a reset cell before each episode that starts from zero state.

A piece is the part of one episode that lies in one slot's segment. A head is a piece that starts at step 0: it needs the
start state of its slot, so the head of slot b is placed at the top of column b. A tail is a piece that ends at the last
step: it must be at the bottom of its column, because a kernel returns c after the last row only. All remaining pieces may
be placed anywhere.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

GOOD_ENOUGH = 1.02  # stop searching when a layout has at most 2% more cells than needed
SHIFT = 32  # (free cells, column) is packed into one integer, because sorting tuples takes twice as long
COLUMN = (1 << SHIFT) - 1


@dataclass(frozen=True)
class Packing:
    """A layout of num_rows x num_columns cells. rows, columns: [T, B], the position of each step.

    unbroken: [B], true for slots without a reset after step 0. The cells below such a slot keep its state; all remaining
    cells without a step reset the state to zero.
    """

    num_rows: int
    num_columns: int
    rows: np.ndarray
    columns: np.ndarray
    unbroken: np.ndarray


def pack(first: np.ndarray) -> Packing | None:
    """Return the layout for the `first` flags [T, B], or None if no episode starts after step 0. Row 0 is ignored.

    One column per slot is best when all slots reset at the same steps. Otherwise, columns of T or T + 1 rows
    that mix pieces of different slots need little more than one cell per step and per reset.
    """
    T, B = first.shape
    opens = first.T.copy()
    opens[:, 0] = True
    slots, starts = np.nonzero(opens)
    num_pieces = len(slots)
    if num_pieces == B:
        return None
    lengths = np.diff(slots * T + starts, append=B * T)
    heads, tails = starts == 0, starts + lengths == T
    pieces_per_slot = np.bincount(slots)

    earlier_in_slot = np.arange(num_pieces) - np.flatnonzero(heads)[slots]
    num_rows, num_columns = T - 1 + int(pieces_per_slot.max()), B
    at_row = np.where(tails & ~heads, num_rows - lengths, starts + earlier_in_slot)
    at_column = slots
    least = T * B + num_pieces - B
    for height in (T, T + 1):
        if num_rows * num_columns <= GOOD_ENOUGH * least:
            break
        filled = fill_columns(lengths.tolist(), heads, tails, height)
        if height * filled[0] < num_rows * num_columns:
            num_rows, (num_columns, at_row, at_column) = height, filled
    piece = opens.cumsum().reshape(B, T).T - 1
    rows = np.arange(T)[:, None] + (at_row - starts)[piece]
    return Packing(num_rows, num_columns, rows, at_column[piece], pieces_per_slot == 1)


def fill_columns(
    lengths: list[int], heads: np.ndarray, tails: np.ndarray, num_rows: int
) -> tuple[int, np.ndarray, np.ndarray]:
    """Place the pieces in columns by best fit, longest piece first; add a column if none has enough room.

    Return the number of columns, and the row and column of each piece.
    """
    row, column = [0] * len(lengths), [0] * len(lengths)
    next_row = []
    for piece in np.flatnonzero(heads).tolist():
        column[piece] = len(next_row)
        next_row.append(lengths[piece])
    room = sorted((num_rows - used << SHIFT) + b for b, used in enumerate(next_row) if used < num_rows)

    def take(cells: int) -> int:
        """Remove and return the smallest entry of `room` with at least `cells` free cells; add a column if there is none."""
        at = bisect_left(room, cells << SHIFT)
        if at < len(room):
            return room.pop(at)
        next_row.append(-1)  # a new column starts from zero state, so its first piece needs no reset cell
        return (num_rows + 1 << SHIFT) + len(next_row) - 1

    longest_first = sorted(np.flatnonzero(~heads).tolist(), key=lengths.__getitem__, reverse=True)
    ended = []
    for piece in (p for p in longest_first if tails[p]):
        need = lengths[piece] + 1
        taken = take(need)
        column[piece], row[piece] = taken & COLUMN, num_rows - lengths[piece]
        ended.append(taken - (need << SHIFT))
    room = sorted(room + ended)
    for piece in (p for p in longest_first if not tails[p]):
        need = lengths[piece] + 1
        taken = take(need)
        column[piece] = where = taken & COLUMN
        row[piece] = next_row[where] + 1
        next_row[where] += need
        insort(room, taken - (need << SHIFT))
    return len(next_row), np.array(row), np.array(column)
