"""Prepare this process for a run: device, seeds, memory allocator and threads."""

from __future__ import annotations

import random

import numpy as np
import torch

from holdfast.config.batches import BatchPlan
from holdfast.config.settings import Settings
from holdfast.errors import SettingsError, first_line
from holdfast.policies import Policy
from holdfast.trainer.malloc import keep_freed_memory

SMALL_WORK = 4e9  # floating point operations per minibatch
ALL_THREADS = torch.get_num_threads()  # torch's default, read before any run changes it


def prepare_process(settings: Settings) -> None:
    """Check the device and seed all global generators."""
    try:
        torch.empty(0, device=settings.device)
        torch.Generator(settings.device)
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error)
        if reason.startswith("Expected one of"):
            reason = "torch knows no such device"  # torch lists all kinds that exist anywhere
        available = ", ".join(["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))])
        raise SettingsError(
            f"device={settings.device} is not available: {reason.rstrip('.')}.\nAvailable here: {available}."
        ) from None
    keep_freed_memory()
    # Orthogonal initialisation rounds differently with more threads: one thread gives the same weights everywhere.
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    # for a user's world or policy that draws from them
    random.seed(settings.seed)
    np.random.seed(settings.seed)


def choose_num_threads(policy: Policy, plan: BatchPlan) -> int:
    """One thread for small networks, torch's default for large ones.

    Threads synchronise after every operation, so one that waits for a busy core delays all: on a loaded two-core machine
    the quick start ran at 630 steps/s with two threads and at 3,200 with one. The choice depends on sizes alone, because
    the number of threads changes rounding.
    """
    operations = 6 * plan.minibatch_size * sum(p.numel() for p in policy.parameters())  # forward and backward
    return 1 if operations < SMALL_WORK else ALL_THREADS
