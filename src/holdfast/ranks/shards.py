"""Shards: equal blocks of a run's slots. A run has a fixed number of them, whatever the number of ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.ranks.group import Group


@dataclass(frozen=True)
class Shards:
    """The shards of a run: `count` in all, of which each rank computes an equal, contiguous part.

    noise: states of torch's global generator, which a policy may use (for dropout): one for each shard of this rank, and a
    last one for what all ranks compute alike. Empty if there is only one shard, which uses the generator as it is.
    """

    count: int = 1
    group: Group = field(default_factory=Group)
    noise: list[Tensor] = field(default_factory=list)

    @classmethod
    def of(cls, count: int, group: Group, seed: int) -> Shards:
        shards = cls(count, group)
        if count > 1:
            numbers = (*shards.own, count)
            shards.noise.extend(torch.Generator().manual_seed(shards.seed(seed, i)).get_state() for i in numbers)
        return shards

    @property
    def own(self) -> range:
        """The shards of this rank."""
        each = self.count // self.group.size
        return range(self.group.rank * each, (self.group.rank + 1) * each)

    def parts(self, total: int) -> list[range]:
        """The environments or slots, of `total` in the run, that belong to each shard of this rank."""
        each = total // self.count
        return [range(shard * each, (shard + 1) * each) for shard in self.own]

    def concat(self, rows: Tensor) -> Tensor:
        """Return the rows of all shards, given those of this rank: [own, ...] -> [count, ...]."""
        return self.group.concat(rows)

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in the order of ranks. A value must be JSON."""
        return [json.loads(data) for data in self.group.gather(json.dumps(value).encode())]

    def seed(self, seed: int, shard: int) -> int:
        """Return the seed of a shard's random generators. A run with one shard uses the run's seed itself."""
        return seed if self.count == 1 else int(np.random.SeedSequence([seed, shard]).generate_state(1)[0])

    @contextmanager
    def noise_of(self, index: int) -> Iterator[None]:
        """Give torch's global generator the state `noise[index]` inside, and store its new state afterwards.

        So what a policy draws from it depends on the shard, not on the rank. index: -1 for what all ranks compute alike.
        """
        if self.count == 1:
            yield
            return
        torch.set_rng_state(self.noise[index])
        yield
        self.noise[index] = torch.get_rng_state()


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of some numbers, in double precision."""

    count: float
    mean: float
    squares: float

    @staticmethod
    def of(x: Tensor, valid: Tensor) -> Tensor:
        """Return the moments of the valid numbers in x as a tensor [3]: count, mean, squares."""
        x, count = x.double(), valid.double().sum()
        mean = x.where(valid, 0.0).sum() / count.clamp(min=1)
        return torch.stack([count, mean, (x - mean).where(valid, 0.0).square().sum()])

    @classmethod
    def merge(cls, parts: Tensor | Sequence[Sequence[float]]) -> Moments:
        """Merge the moments of several sets [N, 3] in their order (Chan's formula)."""
        count = mean = squares = 0.0
        for n, part_mean, part_squares in parts.tolist() if isinstance(parts, Tensor) else parts:
            if n:
                delta, total = part_mean - mean, count + n
                mean += delta * n / total
                squares += part_squares + delta * delta * count * n / total
                count = total
        return cls(count, mean, squares)

    @property
    def variance(self) -> float:
        return self.squares / max(self.count, 1.0)
