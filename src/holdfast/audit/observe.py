"""Observations to audit with: real ones, met by acting at random in the policy's own world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.config.settings import EnvSection
from holdfast.envs import make_world
from holdfast.policies.actions import Sampling, distribution_for, only_legal
from holdfast.spec import WorldSpec, keys

STEPS, MOST_ENVS = 40, 4


def observer(settings: EnvSection) -> Callable[[int, torch.Generator], Tensor]:
    """A function that gives N observations of this world, [N, ...], as different as it shows them."""

    def observe(N: int, generator: torch.Generator) -> Tensor:
        return some_of(wander(settings, generator), N, generator)

    return observe


def wander(settings: EnvSection, generator: torch.Generator) -> np.ndarray:
    """Every observation of a short random walk, [steps x slots, ...]."""
    few = settings.model_copy(update={"num_envs": min(settings.num_envs, MOST_ENVS)})
    with make_world(few) as world:
        obs, info = world.reset(seed=int(torch.randint(2**31 - 1, (1,), generator=generator)))
        seen = [np.array(obs)]
        for _ in range(STEPS):
            obs, _, _, _, info = world.step(random_actions(world.world_spec, len(obs), info, generator))
            seen.append(np.array(obs))
    return np.concatenate(seen)


def some_of(seen: np.ndarray, N: int, generator: torch.Generator) -> Tensor:
    """N of these, each kind once before any comes twice."""
    kinds = {row.tobytes(): i for i, row in enumerate(seen)}
    different = np.array(list(kinds.values()))
    order = torch.randperm(len(different), generator=generator).numpy()
    return torch.from_numpy(seen[np.resize(different[order], N)].copy())


def random_actions(spec: WorldSpec, n: int, info: dict[str, Any], generator: torch.Generator) -> np.ndarray:
    """n actions [n, ...], legal where the world says which are."""
    distribution = distribution_for(spec.actions)
    params = torch.zeros(n, distribution.num_params)
    if spec.mask_size:
        params = only_legal(params, torch.from_numpy(np.asarray(info[keys.ACTION_MASK])))
    return distribution.draw(params, Sampling(generator=generator))[0].numpy()
