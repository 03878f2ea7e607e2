"""trainer.normalize_rewards: divide rewards by the size of the discounted returns seen so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from holdfast.ppo import Experience, discounted_sums
from holdfast.ranks import Shards


class RewardScale:
    """A running scale that brings returns to a size of about 1, whatever the unit of the rewards.

    The scale is 1 / root mean square of the discounted sum of rewards, over all steps of the run so far. It is not the
    standard deviation, which vanishes if every step has the same reward. It changes once per rollout, before advantages
    are computed, and is summed over shards in their order, so it does not depend on the number of ranks.
    """

    def __init__(self, gamma: float, shards: Shards):
        self._gamma, self._shards = gamma, shards
        self._running: dict[int, Tensor] = {}  # [S] discounted sum of the running episode, by shard of this rank
        self._count = self._squares = 0.0  # over all shards

    @property
    def factor(self) -> float:
        return (self._count / self._squares) ** 0.5 if self._squares else 1.0

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
        for count, squares in self._shards.concat(torch.stack(own)).tolist():
            self._count += count
            self._squares += squares

    def totals(self) -> dict[str, Tensor]:
        """Return the sums over all shards, for a checkpoint."""
        return {"totals": torch.tensor([self._count, self._squares], dtype=torch.float64)}

    def running(self, shard: int) -> dict[str, Tensor]:
        """Return the discounted sums of the running episodes of one shard of this rank, for a checkpoint."""
        return {"running": self._running[shard]}

    def restore(self, saved: Mapping[str, Tensor], slots: Mapping[int, slice], running: bool) -> None:
        """Restore the saved sums. slots: those of each shard of this rank; running: whether their episodes continue."""
        self._count, self._squares = saved["totals"].tolist()
        if running:
            self._running = {shard: saved["running"][places].clone() for shard, places in slots.items()}
