"""Arrange the episodes of a segment in columns, with a blank cell before each episode that starts from zero.

A piece is the part of one episode that lies in the segment of one slot. Heads (from step 0) need their slot's start
state, so head b opens column b. Tails (up to the last step) must end their column, because a kernel returns c after the
last row only. Other pieces may go anywhere.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

GOOD_ENOUGH = 1.02  # stop searching when a layout has at most 2% more cells than needed
SHIFT = 32  # (free cells, column) packed into one integer: sorting tuples takes twice the time
COLUMN = (1 << SHIFT) - 1


@dataclass(frozen=True)
class Packing:
    """num_rows x num_columns cells; rows, columns [T, B] are the position of each step.

    The other cells are blank, except below a slot without an interior reset (unbroken [B]): those hold the state.
    """

    num_rows: int
    num_columns: int
    rows: np.ndarray
    columns: np.ndarray
    unbroken: np.ndarray


def pack(first: np.ndarray) -> Packing | None:
    """The layout for first [T, B]; None if no episode opens after row 0, which is ignored.

    One column per slot is best when all slots reset at the same steps. Otherwise columns of T or T + 1 rows, filled
    tightly with pieces of any slot, need hardly more cells than there are steps and episodes.
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
    """Best-fit packing, longest piece first; a new column if none has room.

    Returns the number of columns, and the row and column of each piece.
    """
    row, column = [0] * len(lengths), [0] * len(lengths)
    next_row = []
    for piece in np.flatnonzero(heads).tolist():
        column[piece] = len(next_row)
        next_row.append(lengths[piece])
    room = sorted((num_rows - used << SHIFT) + b for b, used in enumerate(next_row) if used < num_rows)

    def take(cells: int) -> int:
        """Remove and return the smallest entry of `room` with so many free cells."""
        at = bisect_left(room, cells << SHIFT)
        if at < len(room):
            return room.pop(at)
        next_row.append(-1)  # a new column starts from zero: no blank before its first piece
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
