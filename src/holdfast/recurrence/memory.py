"""The one place where state is kept between calls: a table with one row per slot."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.recurrence.core import State, as_mask


class Memory:
    """One table [layers, slots, hidden] per state leaf. Slots nobody has written read as zeros.

    What goes in is detached and copied, what comes out is a copy: nothing here has a graph, or changes behind
    a caller's back. Slots are given as distinct numbers in any order; the tables grow when a new one appears.
    """

    def __init__(
        self,
        state_shapes: Sequence[tuple[int, int]],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        empty = torch.empty(0, device=device, dtype=dtype)
        self._tables = [empty.new_zeros(layers, 0, hidden) for layers, hidden in state_shapes]
        self._ids = torch.arange(0, device=device)

    @property
    def num_slots(self) -> int:
        return len(self._ids)

    def read(self, slots: Tensor, first: Tensor | None = None) -> State:
        """State [L, B, H] of slots [B]; zeros where first [B] is set (bool, or any number but 0)."""
        slots, _ = self._known(slots)
        state = tuple(table.index_select(1, slots) for table in self._tables)
        if first is not None:
            if first.shape != slots.shape:
                raise ValueError(f"first is {list(first.shape)}; for these slots it has to be {list(slots.shape)}.")
            rows = as_mask(first).nonzero().squeeze(1).to(self._ids)
            if len(rows):
                for leaf in state:
                    leaf.index_fill_(1, rows, 0.0)
        return state

    def write(self, slots: Tensor, state: State) -> None:
        """Keep state [L, B, H] as the memory of slots [B]."""
        self._check_state(state, len(slots))
        slots, in_order = self._known(slots)
        for table, leaf in zip(self._tables, state, strict=True):
            if in_order:
                table[:, : len(slots)].copy_(leaf.detach())
            else:
                table.index_copy_(1, slots, leaf.detach().to(table))

    def reset(self, slots: Tensor | int | None = None) -> None:
        """Forget these slots, or everything."""
        if slots is None:
            for table in self._tables:
                table.zero_()
            return
        slots, _ = self._known(torch.tensor([slots]) if isinstance(slots, int) else slots)
        for table in self._tables:
            table.index_fill_(1, slots, 0.0)

    def snapshot(self) -> State:
        """A copy of the whole table."""
        return tuple(table.clone() for table in self._tables)

    def restore(self, state: State) -> None:
        """Become a copy of a snapshot, whatever its number of slots."""
        num_slots = state[0].shape[1] if state and state[0].dim() == 3 else 0
        self._check_state(state, num_slots)
        self._tables = [leaf.detach().to(t, copy=True) for leaf, t in zip(state, self._tables, strict=True)]
        self._ids = torch.arange(num_slots).to(self._ids)

    def _known(self, slots: Tensor) -> tuple[Tensor, bool]:
        """Slots as rows that exist, and whether they are just 0, 1, ..., B-1, as acting asks for at every step."""
        if slots.dim() != 1 or slots.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"slots are {slots.dtype} {list(slots.shape)}; they have to be slot numbers, int64 [B]. "
                "For a mask, give mask.nonzero().squeeze(1)."
            )
        slots = slots.to(self._ids)
        if torch.equal(slots, self._ids[: len(slots)]):
            return slots, True
        numbers = slots.tolist()
        if min(numbers) < 0:
            raise ValueError(f"slot {min(numbers)} is negative; slots are counted from 0.")
        if len(set(numbers)) < len(numbers):
            twice = next(n for n in numbers if numbers.count(n) > 1)
            raise ValueError(f"slot {twice} is given twice; each slot has one memory, so give it once.")
        self._grow(max(numbers) + 1)
        return slots, False

    def _grow(self, num_slots: int) -> None:
        extra = num_slots - self.num_slots
        if extra > 0:
            self._tables = [torch.cat([t, t.new_zeros(len(t), extra, t.shape[2])], 1) for t in self._tables]
            self._ids = torch.arange(num_slots).to(self._ids)

    def _check_state(self, state: State, num_slots: int) -> None:
        shapes = [(len(table), num_slots, table.shape[2]) for table in self._tables]
        if [leaf.shape for leaf in state] != shapes:
            raise ValueError(
                f"state is {[list(leaf.shape) for leaf in state]}; "
                f"for {num_slots} slots this memory keeps {[list(shape) for shape in shapes]}."
            )
