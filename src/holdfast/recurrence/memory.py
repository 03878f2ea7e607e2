"""Memory stores the recurrent state of every slot. No other object keeps state between calls."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.recurrence.core import State, check_state


class Memory:
    """The state of every slot: one table [layers, slots, hidden] per state tensor. Slots never written have zero state.

    States are detached and copied when written, and copied when read, so the tables have no autograd graph and share no
    memory with the caller. Slot numbers may come in any order, without duplicates; the tables grow for new slots.
    """

    def __init__(self, state_shapes: Sequence[tuple[int, int]], device: torch.device | str = "cpu"):
        self._shapes = state_shapes
        self._tables = [torch.zeros(layers, 0, hidden, device=device) for layers, hidden in state_shapes]
        self._ids = torch.arange(0, device=device)

    @property
    def num_slots(self) -> int:
        return len(self._ids)

    def read(self, slots: Tensor) -> State:
        """Return a copy of the state [layers, B, hidden] of `slots` [B]."""
        slots, _ = self._check_slots(slots)
        return tuple(table.index_select(1, slots) for table in self._tables)

    def write(self, slots: Tensor, state: State) -> None:
        """Store a copy of `state` [layers, B, hidden] for `slots` [B]."""
        check_state(state, self._shapes, len(slots))
        slots, in_order = self._check_slots(slots)
        for table, leaf in zip(self._tables, state, strict=True):
            if in_order:
                table[:, : len(slots)].copy_(leaf.detach())
            else:
                table.index_copy_(1, slots, leaf.detach().to(table))

    def reset(self, slots: Tensor | int | None = None) -> None:
        """Set the state of these slots to zero; of all slots if None."""
        if slots is None:
            for table in self._tables:
                table.zero_()
            return
        slots, _ = self._check_slots(torch.tensor([slots]) if isinstance(slots, int) else slots)
        for table in self._tables:
            table.index_fill_(1, slots, 0.0)

    def snapshot(self) -> State:
        """Return a copy of the state of all slots."""
        return tuple(table.clone() for table in self._tables)

    def restore(self, state: State) -> None:
        """Replace the state of all slots by a copy of a snapshot. The number of slots may change."""
        num_slots = state[0].shape[1] if state and state[0].dim() == 3 else 0
        check_state(state, self._shapes, num_slots)
        self._tables = [leaf.detach().to(t, copy=True) for leaf, t in zip(state, self._tables, strict=True)]
        self._ids = torch.arange(num_slots).to(self._ids)

    def _check_slots(self, slots: Tensor) -> tuple[Tensor, bool]:
        """Check the slot numbers, and grow the tables for new slots.

        Return the slots, and whether they are 0, 1, ..., B-1, which is the usual case when acting.
        """
        if slots.dim() != 1 or slots.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"`slots` has dtype {slots.dtype} and shape {list(slots.shape)}; it must contain slot numbers, int64 [B]. "
                "For a mask, pass mask.nonzero().squeeze(1)."
            )
        slots = slots.to(self._ids)
        if torch.equal(slots, self._ids[: len(slots)]):
            return slots, True
        numbers = slots.tolist()
        if min(numbers) < 0:
            raise ValueError(f"slot {min(numbers)} is negative; slot numbers start at 0.")
        if len(set(numbers)) < len(numbers):
            twice = next(n for n in numbers if numbers.count(n) > 1)
            raise ValueError(f"slot {twice} is given twice; pass each slot number once.")
        extra = max(numbers) + 1 - self.num_slots
        if extra > 0:
            self._tables = [torch.cat([t, t.new_zeros(len(t), extra, t.shape[2])], 1) for t in self._tables]
            self._ids = torch.arange(max(numbers) + 1).to(self._ids)
        return slots, False
