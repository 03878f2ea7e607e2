"""Segments of a rollout, each with the state before its first step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.recurrence.core import State
from holdfast.spec import keys


@dataclass(frozen=True)
class Replay:
    """Inputs of T consecutive steps of M slots, and the state of each slot before the first step."""

    inputs: dict[str, Tensor]  # env_obs, rewards, dones, truncateds and the policy's extra keys: [T, M, ...]
    start_state: State  # leaves [layers, M, hidden]

    @property
    def first(self) -> Tensor:
        """Flags [T, M] bool: true where an observation starts a new episode."""
        return self.inputs[keys.DONES] | self.inputs[keys.TRUNCATEDS]


@dataclass(frozen=True)
class Segments(Replay):
    """A minibatch of M whole segments."""

    actions: Tensor  # [T, M, ...]
    log_prob: Tensor  # [T, M] stored while acting
    values: Tensor  # [T, M] stored while acting
    valid: Tensor  # [T, M] bool: false where the transition must not be learned from
    advantages: Tensor  # [T, M]
    returns: Tensor  # [T, M]


@dataclass(frozen=True)
class BurnIn(Replay):
    """The steps before some segments of a minibatch. Replaying them gives those segments' start states."""

    positions: Tensor  # [m] indices of these segments in the minibatch


def state_rows(horizon: int, segments_per_slot: int, burn_in: int = 0) -> dict[int, int]:
    """Map each row at which a segment or its burn-in begins to the index of the state stored for that row."""
    starts = [k * horizon for k in range(segments_per_slot)]
    rows = {*starts, *(max(0, start - burn_in) for start in starts)}
    return {row: index for index, row in enumerate(sorted(rows))}
