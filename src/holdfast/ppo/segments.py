"""Pieces of a rollout, each with the state its slots had before its first step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.recurrence.core import State
from holdfast.spec import keys


@dataclass(frozen=True)
class Replay:
    """Consecutive inputs of M slots, and the state each slot had before the first of them."""

    inputs: dict[str, Tensor]  # env_obs, rewards, dones, truncateds and the policy's extra keys: [T, M, ...]
    start_state: State  # leaves [layers, M, hidden]

    @property
    def first(self) -> Tensor:
        """[T, M] bool: observations that open a new episode."""
        return self.inputs[keys.DONES] | self.inputs[keys.TRUNCATEDS]


@dataclass(frozen=True)
class Segments(Replay):
    """A minibatch of M whole segments."""

    actions: Tensor  # [T, M, ...]
    log_prob: Tensor  # [T, M] when acting
    values: Tensor  # [T, M] when acting
    valid: Tensor  # [T, M] bool: false where the transition must not be learned from
    advantages: Tensor  # [T, M]
    returns: Tensor  # [T, M]


@dataclass(frozen=True)
class BurnIn(Replay):
    """The steps before some segments of a minibatch. Replaying them gives those segments' start states."""

    positions: Tensor  # [m]: which segments of the minibatch


def state_rows(horizon: int, segments_per_slot: int, burn_in: int = 0) -> dict[int, int]:
    """Rows whose state is stored -> index in the store: the rows where segments or their burn-in begin."""
    starts = [k * horizon for k in range(segments_per_slot)]
    rows = {*starts, *(max(0, start - burn_in) for start in starts)}
    return {row: index for index, row in enumerate(sorted(rows))}
