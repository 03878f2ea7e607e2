"""Code that adapters share: sampled observations, and resets by the caller."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from holdfast.audit.subject import State, Subject
from holdfast.errors import SettingsError

Sampler = Callable[[int, torch.Generator], Tensor]


class SampledSubject(Subject):
    """A subject whose observations come from the user's function, or else are normal noise of a given shape."""

    def __init__(self, obs_shape: tuple[int, ...] | None, observations: Sampler | None):
        if observations is None and obs_shape is None:
            raise SettingsError(
                f"{type(self).__name__} does not know what observations look like: give obs_shape=(...), or give "
                "observations=FUNCTION, where FUNCTION(N, generator) returns a tensor [N, ...]."
            )
        self._sample, self._obs_shape = observations, obs_shape or ()

    def observations(self, N: int, generator: torch.Generator) -> Tensor:
        if self._sample is not None:
            return self._sample(N, generator)
        return torch.randn(N, *self._obs_shape, generator=generator)


def zero_where_first(state: State, first: Tensor, slot_axis: int) -> State:
    """Zero the state of the slots in which an episode starts (first [B]), as a careful caller does."""
    shapes = ([-1 if axis == slot_axis else 1 for axis in range(leaf.dim())] for leaf in state)
    return tuple(leaf * (first == 0).view(shape).to(leaf.dtype) for leaf, shape in zip(state, shapes, strict=True))
