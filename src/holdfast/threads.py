"""How many threads torch uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

SMALL_WORK = 4e9  # floating point operations, forward and backward
ALL_THREADS = torch.get_num_threads()  # torch's default, read before anything changes it


def num_threads_for(network: nn.Module, observations: int) -> int:
    """Return 1 if a network has little to do for that many observations, torch's default number of threads otherwise.

    Threads synchronise after every operation, so one that waits for a busy core delays all others: on a loaded two-core
    machine, the quick start ran at 630 steps/s with two threads and at 3,200 with one.
    """
    operations = 6 * observations * sum(weights.numel() for weights in network.parameters())
    return 1 if operations < SMALL_WORK else ALL_THREADS


@contextmanager
def num_threads_kept(number: int | None = None) -> Iterator[None]:
    """Use this number of threads inside the block, by default as many as before it; afterwards as many as before it."""
    before = torch.get_num_threads()
    try:
        if number is not None:
            torch.set_num_threads(number)
        yield
    finally:
        torch.set_num_threads(before)
