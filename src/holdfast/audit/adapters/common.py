"""What several adapters need: observations out of a shape, and a state cleared by its caller."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from holdfast.audit.subject import State
from holdfast.errors import SettingsError

Observe = Callable[[int, torch.Generator], Tensor]


def observing(who: str, obs_shape: tuple[int, ...] | None, observations: Observe | None) -> Observe:
    """N observations [N, ...] as the user says they are: by a function of their own, or normal numbers of a shape."""
    if observations is not None:
        return observations
    if obs_shape is None:
        raise SettingsError(
            f"{who} does not know what is observed: give obs_shape=(...), "
            "or observations=a function of (N, generator) that returns N of them, [N, ...]."
        )
    shape = obs_shape
    return lambda N, generator: torch.randn(N, *shape, generator=generator)


def blanked(state: State, first: Tensor, slot_axis: int) -> State:
    """The state as a caller clears it: zeros in the slots whose episode begins, first [B]."""
    going_on = (first == 0).to(torch.get_default_dtype())
    return tuple(leaf * _along(going_on, leaf, slot_axis) for leaf in state)


def _along(mask: Tensor, leaf: Tensor, axis: int) -> Tensor:
    shape = [1] * leaf.dim()
    shape[axis] = len(mask)
    return mask.view(shape).to(leaf.dtype)
