"""What arrives with an observation, under its keys: the one translation from a world's answer to a policy's input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.policies import Policy
from holdfast.spec import WorldSpec, keys


def arrivals(
    obs: np.ndarray, rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, info: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """The answer of `World.step`; arrays [slots, ...] that last until the next one."""
    arrived = {keys.OBS: obs, keys.REWARDS: rewards, keys.DONES: terminated, keys.TRUNCATEDS: truncated}
    if keys.ACTION_MASK in info:
        arrived[keys.ACTION_MASK] = info[keys.ACTION_MASK]
    return arrived


def first_arrivals(obs: np.ndarray, info: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The answer of `World.reset`: every observation opens an episode."""
    nothing = np.zeros(len(obs), np.float32)
    return arrivals(obs, nothing, nothing == 0, nothing != 0, info)


def check_experience_spec(policy: Policy) -> None:
    """Refuse a policy that wants to store what no world gives it, before anything is collected."""
    supplied = keys_supplied(policy.spec)
    if unknown := [key for key in policy.get_agent_experience_spec() if key not in supplied]:
        mask = "" if policy.spec.mask_size else f" ({keys.ACTION_MASK}: only where the world masks actions)"
        raise HoldfastError(
            f"{type(policy).__name__}.get_agent_experience_spec asks for {', '.join(map(repr, unknown))}, "
            f"which {policy.spec.name} does not supply.\nIt supplies {', '.join(supplied)}{mask}."
        )


def keys_supplied(spec: WorldSpec) -> tuple[str, ...]:
    """What `arrivals` brings from this world."""
    mask = (keys.ACTION_MASK,) if spec.mask_size else ()
    return (keys.OBS, keys.REWARDS, keys.DONES, keys.TRUNCATEDS, *mask)
