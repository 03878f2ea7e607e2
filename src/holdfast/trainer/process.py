"""Prepare this process for a run: device, seeds, memory allocator and threads."""

from __future__ import annotations

import ctypes
import platform
import random

import numpy as np
import psutil
import torch

from holdfast.config.batches import BatchPlan
from holdfast.config.settings import Settings
from holdfast.deploy.loading import check_device
from holdfast.errors import SettingsError, lack_of_memory
from holdfast.policies import Policy
from holdfast.ppo import experience_bytes
from holdfast.spec import keys
from holdfast.threads import num_threads_for

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # numbers from malloc.h
ONE_GIB = 1 << 30


def prepare_process(settings: Settings) -> None:
    """Check the device, seed the global random generators, and set the memory allocator and the number of threads."""
    check_device(settings.device)
    keep_freed_memory()
    # With one thread, orthogonal initialisation rounds the same way on every machine.
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    # for custom worlds and policies that use these generators
    random.seed(settings.seed)
    np.random.seed(settings.seed)


def experience_spec(policy: Policy) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and dtype of everything that the experience stores for this policy."""
    actions = policy.spec.actions
    return {**policy.get_agent_experience_spec(), keys.ACTIONS: (actions.shape, actions.dtype)}


def check_memory(settings: Settings, policy: Policy, plan: BatchPlan, num_slots: int) -> None:
    """Raise SettingsError if the experience buffer does not fit into memory, before the world is built or anything allocated."""
    steps, shapes = plan.horizon * plan.segments_per_slot, policy.state_shapes
    needed = experience_bytes(experience_spec(policy), num_slots, plan.horizon, plan.segments_per_slot, shapes)
    device = torch.device(settings.device)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    if lack := lack_of_memory(needed, free):
        raise SettingsError(
            f"the experience buffer ({num_slots:,} slots x {steps:,} steps) needs {lack}.\n"
            "Use a smaller env.num_envs, trainer.horizon or trainer.batch_size."
        )


def choose_num_threads(policy: Policy, plan: BatchPlan) -> int:
    """Return 1 for small networks and for runs with several shards, torch's default number of threads for other ones.

    The choice depends only on sizes, because the number of threads changes rounding.
    """
    return 1 if plan.shards > 1 else num_threads_for(policy, plan.minibatch_size)


def keep_freed_memory() -> bool:
    """Let this process reuse freed memory instead of returning it to the kernel. Return whether glibc accepted this.

    A call over a segment needs tens of megabytes of workspace. By default, glibc returns freed blocks of that size to the
    kernel, which has to map and clear them again for the next call. Measured for forward and backward over 64 x 64 steps
    and two layers of 128 units, this took 20 of 120 ms (8,000 page faults).
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_THRESHOLD, ONE_GIB)) and bool(mallopt(M_TRIM_THRESHOLD, ONE_GIB))
