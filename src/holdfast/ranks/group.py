"""How ranks exchange data. `Group` is the group of a process that runs alone; `distributed.Ranks` connects several."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.errors import HoldfastError


class RankLostError(HoldfastError):
    """Another rank has ended or does not respond, so this one cannot continue."""


class Group:
    """The ranks of a run, each of which calls these methods in the same order. This group has one rank."""

    rank = 0
    size = 1

    @property
    def leads(self) -> bool:
        """Whether this rank writes the run folder and prints."""
        return self.rank == 0

    def gather(self, data: bytes) -> list[bytes]:
        """Return the data of every rank, in the order of ranks."""
        return [data]

    def broadcast(self, data: bytes) -> bytes:
        """Return the data of rank 0; that of other ranks is ignored."""
        return data

    def concat(self, rows: Tensor) -> Tensor:
        """Concatenate the rows of all ranks, in the order of ranks. Their shapes must be the same."""
        return rows

    def ordered_sum(self, num_rows: int, length: int) -> OrderedSum:
        """Prepare sums over rows [length], of which every rank has `num_rows`."""
        return OrderedSum(num_rows, length)

    def close(self, failed: bool) -> None:
        """Leave the group. `failed`: this rank ends with an error, so do not wait for the others."""


class OrderedSum:
    """Sums over the rows of all ranks, always added in the same order: of ranks, and of rows within a rank.

    Write into `rows` [num_rows, length], then call `sum`. Floating point sums depend on the order of their terms, so a plain
    all-reduce would give other bits for another number of ranks.
    """

    def __init__(self, num_rows: int, length: int, device: torch.device | str = "cpu"):
        self.rows = torch.zeros(num_rows, length, device=device)

    def sum(self) -> Tensor:
        """Return the sum [length] over all rows. The next call overwrites it."""
        return add_rows(self.rows)


def add_rows(rows: Tensor) -> Tensor:
    """Add rows [N, length] one after the other."""
    total = rows[0].clone()
    for row in rows[1:]:
        total += row
    return total
