"""Observations to audit with, sampled by acting at random in the policy's own world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.config.sections import EnvSection
from holdfast.custom_code import process_restored
from holdfast.envs import make_world
from holdfast.policies.actions import Sampling, distribution_for, only_legal
from holdfast.spec import WorldSpec, keys

NUM_STEPS, MAX_ENVS = 40, 4


def observation_sampler(settings: EnvSection) -> Callable[[int, torch.Generator], Tensor]:
    """Return a function (N, generator) -> N observations [N, ...] of this world."""
    return lambda N, generator: pick_distinct(random_walk(settings, generator), N, generator)


@process_restored()
def random_walk(settings: EnvSection, generator: torch.Generator) -> np.ndarray:
    """Return every observation of a short random walk, [steps x slots, ...]."""
    few = settings.model_copy(update={"num_envs": min(settings.num_envs, MAX_ENVS)})
    with make_world(few) as world:
        obs, info = world.reset(seed=int(torch.randint(2**31 - 1, (1,), generator=generator)))
        seen = [np.array(obs)]
        for _ in range(NUM_STEPS):
            obs, _, _, _, info = world.step(random_actions(world.world_spec, len(obs), info, generator))
            seen.append(np.array(obs))
    return np.concatenate(seen)


def pick_distinct(seen: np.ndarray, N: int, generator: torch.Generator) -> Tensor:
    """Return N of these observations; none repeats before each distinct one was used."""
    distinct = np.array(list({row.tobytes(): i for i, row in enumerate(seen)}.values()))
    order = torch.randperm(len(distinct), generator=generator).numpy()
    return torch.from_numpy(seen[np.resize(distinct[order], N)].copy())


def random_actions(spec: WorldSpec, n: int, info: dict[str, Any], generator: torch.Generator) -> np.ndarray:
    """Return n random actions [n, ...], legal ones where the world has an action mask."""
    distribution = distribution_for(spec.actions)
    params = torch.zeros(n, distribution.num_params)
    if spec.mask_size:
        params = only_legal(params, torch.from_numpy(np.asarray(info[keys.ACTION_MASK])))
    return distribution.draw(params, Sampling(generator=generator))[0].numpy()
