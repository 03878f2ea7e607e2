"""Laying the episodes of a segment out in columns, with a blank cell before each one that starts from zero.

A piece is the part of one episode that one slot has in the segment. Heads (from step 0) need their slot's start
state, so head b opens column b; tails (up to the last step) have to end their column, because a kernel hands
back c after the last row only. All else may lie in any column.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

GOOD_ENOUGH = 1.02  # no better layout is looked for when one has at most 2% more cells than there must be
SHIFT = 32  # (free cells, column) are sorted as one integer: pairs take twice the time
COLUMN = (1 << SHIFT) - 1


@dataclass(frozen=True)
class Packing:
    """num_rows x num_columns cells; rows, columns [T, B] say where each step lies.

    The other cells are blank, but for those below a slot that opens no episode (unbroken [B]), which hold.
    """

    num_rows: int
    num_columns: int
    rows: np.ndarray
    columns: np.ndarray
    unbroken: np.ndarray


def pack(first: np.ndarray) -> Packing | None:
    """Lay out first [T, B], whose row 0 does not matter; None when no episode opens after it.

    Every slot in its own column is best when all open episodes together. Otherwise columns of T or T + 1
    rows, filled tightly with pieces of any slot, have hardly more cells than there are steps and episodes.
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
    """Longest piece first, each into the column it fits most tightly, or a new one if none has room.

    Returns the number of columns, and the row and the column of each piece.
    """
    row, column = [0] * len(lengths), [0] * len(lengths)
    next_row = []
    for piece in np.flatnonzero(heads).tolist():
        column[piece] = len(next_row)
        next_row.append(lengths[piece])
    room = sorted((num_rows - used << SHIFT) + b for b, used in enumerate(next_row) if used < num_rows)

    def take(cells: int) -> int:
        """The tightest room for so many cells, taken out of `room`."""
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
