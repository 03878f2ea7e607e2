"""Where episodes open, in the form each way of running a core needs."""

from __future__ import annotations

from torch import Tensor

from holdfast.recurrence.core import State


def clear_start(state: State, first: Tensor) -> State:
    """Zero the start state [L, B, H] of every slot that opens an episode at step 0 of first [T, B]."""
    slots = first[0].nonzero().squeeze(1)
    return tuple(leaf.index_fill(1, slots, 0.0) for leaf in state) if slots.numel() else state


class Resets:
    """The episodes that open after step 0 of first [T, B].

    by_step[t]: the slots that open one at step t, or None. rows: all of them as rows of [T * B], or None.
    """

    def __init__(self, first: Tensor):
        T, B = first.shape
        self.rows: Tensor | None = None
        self.by_step: list[Tensor | None] = [None] * T
        counts = first[1:].sum(1).tolist()
        if any(counts):
            self.rows = first[1:].reshape(-1).nonzero().squeeze(1).add_(B)
            slots = self.rows.remainder(B).split(counts)
            self.by_step[1:] = [s if n else None for s, n in zip(slots, counts, strict=True)]


def inputs_and_states(x: Tensor, h0: Tensor, y: Tensor, resets: Resets) -> Tensor:
    """[T * B, I + H]: next to each row of x [T * B, I] the h that its step started from.

    Both weight gradients then come from one matrix product, which is faster than two.
    """
    T, B, H = y.shape
    I = x.shape[1]
    both = x.new_empty(T * B, I + H)
    both[:, :I] = x
    both[:B, I:] = h0
    both[B:, I:] = y[:-1].reshape(-1, H)
    if resets.rows is not None:
        both[:, I:].index_fill_(0, resets.rows, 0.0)
    return both
