"""The memory table: the only place where state is kept between calls. One row per slot."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.recurrence.core import State, as_mask


class Memory:
    """State of every slot, one tensor [layers, slots, hidden] per leaf. What goes in loses its graph; what comes out is a copy."""

    def __init__(self, state_shapes: Sequence[tuple[int, int]], device: torch.device | str = "cpu"):
        self._leaves = [torch.zeros(layers, 0, hidden, device=device) for layers, hidden in state_shapes]

    @property
    def num_slots(self) -> int:
        return self._leaves[0].shape[1] if self._leaves else 0

    def read(self, slots: Tensor, first: Tensor | None = None) -> State:
        """Leaves [layers, B, hidden] of slots [B]; zero where first [B] is set and for slots never written."""
        self._reach(slots)
        state = tuple(leaf.index_select(1, slots) for leaf in self._leaves)
        if first is None:
            return state
        return tuple(leaf.masked_fill(as_mask(first)[:, None], 0.0) for leaf in state)

    @torch.no_grad()
    def write(self, slots: Tensor, state: State) -> None:
        """Keep leaves [layers, B, hidden] for slots [B], without their graph."""
        self._reach(slots)
        for leaf, new in zip(self._leaves, state, strict=True):
            leaf.index_copy_(1, slots, new.detach())

    def reset(self, slots: Tensor | int | None = None) -> None:
        """Blank these slots, or all."""
        if slots is None:
            for leaf in self._leaves:
                leaf.zero_()
            return
        slots = torch.as_tensor(slots, device=self._leaves[0].device if self._leaves else None).reshape(-1)
        if slots.dtype == torch.bool or slots.is_floating_point():
            raise TypeError(f"slots are named by number, not by a mask of {slots.dtype}.")
        self._reach(slots)
        for leaf in self._leaves:
            leaf.index_fill_(1, slots, 0.0)

    def snapshot(self) -> State:
        """A copy of every leaf."""
        return tuple(leaf.clone() for leaf in self._leaves)

    def restore(self, state: State) -> None:
        """Become a copy of these leaves, whatever their number of slots."""
        if len(state) != len(self._leaves) or any(
            new.shape[::2] != leaf.shape[::2] for new, leaf in zip(state, self._leaves, strict=True)
        ):
            raise ValueError(
                f"memory of {[list(leaf.shape) for leaf in state]} does not fit: leaves here are "
                f"{[[leaf.shape[0], 'slots', leaf.shape[2]] for leaf in self._leaves]}."
            )
        self._leaves = [new.detach().to(leaf.device, copy=True) for new, leaf in zip(state, self._leaves, strict=True)]

    def _reach(self, slots: Tensor) -> None:
        """Grow until every one of these slots has a row."""
        if not self._leaves or not slots.numel():
            return
        low, high = (int(x) for x in torch.aminmax(slots))
        if low < 0:
            raise IndexError(f"slot {low}: slots are numbered from 0.")
        missing = high + 1 - self.num_slots
        if missing > 0:
            self._leaves = [torch.cat([x, x.new_zeros(x.shape[0], missing, x.shape[2])], 1) for x in self._leaves]
