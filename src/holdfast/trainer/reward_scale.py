"""trainer.normalize_rewards: divide rewards by the size of the discounted returns seen so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from holdfast.ppo import Experience, discounted_sums
from holdfast.ranks import Shards

HORIZONS = 5  # the scale is measured over this many discount horizons, 1 / (1 - gamma), of every slot
GROWTH = 10  # returns may grow by this factor before the scale follows


class RewardScale:
    """A scale that brings the returns at the start of a run to a size of about 1, whatever the unit of the rewards.

    The scale is 1 / root mean square of the discounted sum of rewards. It is not the standard deviation, which vanishes
    if every step has the same reward. It is measured once, over the first steps of every slot from the first reward on,
    and then kept, because a scale that follows better returns takes from the critic what it has learned: `arena` was at
    7 after 2.2M steps with a scale that follows, and at 20 with one that does not. Only if returns grow by more than
    GROWTH, the scale shrinks. It changes once per rollout, before advantages are computed, and is summed over shards in
    their order, so it does not depend on the number of ranks.
    """

    def __init__(self, gamma: float, shards: Shards):
        self._gamma, self._shards = gamma, shards
        self._running: dict[int, Tensor] = {}  # [S] discounted sum of the running episode, by shard of this rank
        self._rows = self._count = self._squares = 0.0  # since the first reward, over all shards
        self._first_size = 0.0  # root mean square over the first steps

    @property
    def factor(self) -> float:
        """The number to multiply rewards by."""
        return 1.0 / max(self._first_size, self._size / GROWTH) if self._first_size else 1.0

    @property
    def _size(self) -> float:
        return (self._squares / self._count) ** 0.5

    def update(self, experiences: Sequence[Experience]) -> None:
        """Add the rewards of a complete rollout of each shard of this rank."""
        own = []
        for shard, experience in zip(self._shards.own, experiences, strict=True):
            seen = experience.outcomes()
            valid = seen["valid"]
            before = self._running.get(shard, torch.zeros_like(valid[0], dtype=torch.float64))
            sums, self._running[shard] = discounted_sums(
                seen["rewards"], seen["dones"], seen["truncateds"], valid, self._gamma, before
            )
            own.append(torch.stack([valid.sum(), sums.square().where(valid, 0.0).sum()]).cpu())
        found = self._shards.concat(torch.stack(own))
        if not (self._squares or found[:, 1].any()):
            return
        for count, squares in found.tolist():
            self._count += count
            self._squares += squares
        if self._rows * (1.0 - self._gamma) < HORIZONS:
            self._first_size = self._size
        self._rows += experiences[0].num_rows

    def totals(self) -> dict[str, Tensor]:
        """Return the sums over all shards, for a checkpoint."""
        totals = (self._rows, self._count, self._squares, self._first_size)
        return {"totals": torch.tensor(totals, dtype=torch.float64)}

    def running(self, shard: int) -> dict[str, Tensor]:
        """Return the discounted sums of the running episodes of one shard of this rank, for a checkpoint."""
        return {"running": self._running[shard]}

    def restore(self, saved: Mapping[str, Tensor], slots: Mapping[int, slice], running: bool) -> None:
        """Restore the saved sums. slots: those of each shard of this rank; running: whether their episodes continue."""
        self._rows, self._count, self._squares, self._first_size = saved["totals"].tolist()
        if running:
            self._running = {shard: saved["running"][places].clone() for shard, places in slots.items()}
