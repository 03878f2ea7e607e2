"""Pieces of a rollout that are replayed from the memory they were lived with."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.recurrence.core import State
from holdfast.spec import keys


@dataclass(frozen=True)
class Replay:
    """Consecutive inputs of M slots, and the memory each had before the first of them."""

    arrivals: dict[str, Tensor]  # env_obs, rewards, dones, truncateds and the policy's own keys: [T, M, ...]
    start_state: State  # leaves [layers, M, hidden]

    @property
    def first(self) -> Tensor:
        """[T, M] bool: observations that open a new episode."""
        return self.arrivals[keys.DONES] | self.arrivals[keys.TRUNCATEDS]


@dataclass(frozen=True)
class Segments(Replay):
    """A minibatch of M whole segments: inputs, and what acting made of them."""

    actions: Tensor  # [T, M, ...]
    log_prob: Tensor  # [T, M]
    values: Tensor  # [T, M]
    valid: Tensor  # [T, M] bool: false where the transition is junk


@dataclass(frozen=True)
class BurnIn(Replay):
    """The steps before some segments of a minibatch. Replaying them gives those segments' start states."""

    positions: Tensor  # [m]: which segments of the minibatch


def state_rows(horizon: int, segments_per_slot: int, burn_in: int = 0) -> dict[int, int]:
    """Rows whose state is kept, each with its place in the store: where segments or their burn-in begin."""
    starts = [k * horizon for k in range(segments_per_slot)]
    rows = {*starts, *(max(0, start - burn_in) for start in starts)}
    return {row: index for index, row in enumerate(sorted(rows))}
