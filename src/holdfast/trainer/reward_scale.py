"""trainer.normalize_rewards: divide rewards by the size of the discounted returns at the start of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from holdfast.ppo import Experience, discounted_returns
from holdfast.ranks import Shards

HORIZONS = 5  # the scale is measured over this many discount horizons, 1 / (1 - gamma), of every slot
GROWTH = 10  # returns may grow by this factor before the scale follows


class RewardScale:
    """A scale that brings the returns at the start of a run to a size of about 1, whatever the unit of the rewards.

    The scale is 1 / root mean square of the discounted returns of a rollout. It is not the standard deviation, which
    vanishes if every step has the same reward. It is measured once, over the first steps of every slot from the first
    reward on, and then kept: a scale that follows better returns slows the critic down (`arena` was at 7 after 2.2M steps,
    and at 20 with a scale that does not follow). Only if returns grow by more than GROWTH, the scale shrinks.
    It changes once per rollout, before advantages are computed, and is summed over shards in their order, so it does not
    depend on the number of ranks.
    """

    def __init__(self, gamma: float, shards: Shards):
        self._gamma, self._shards = gamma, shards
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
        for experience in experiences:
            seen = experience.outcomes()
            valid = seen["valid"]
            returns = discounted_returns(seen["rewards"], seen["dones"], seen["truncateds"], valid, self._gamma)
            own.append(torch.stack([valid.sum(), returns.square().where(valid, 0.0).sum()]).cpu())
        found = self._shards.concat(torch.stack(own))
        if not (self._squares or found[:, 1].any()):
            return
        for count, squares in found.tolist():
            self._count += count
            self._squares += squares
        if self._rows * (1.0 - self._gamma) < HORIZONS:
            self._first_size = self._size
        self._rows += experiences[0].num_rows

    def tensors(self) -> dict[str, Tensor]:
        """Return everything as a tensor, for a checkpoint."""
        totals = (self._rows, self._count, self._squares, self._first_size)
        return {"totals": torch.tensor(totals, dtype=torch.float64)}

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        self._rows, self._count, self._squares, self._first_size = saved["totals"].tolist()
