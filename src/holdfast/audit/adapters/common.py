"""Code that adapters share: sampled observations, resets by the caller, flags of last steps, flat sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from holdfast.audit.subject import Outputs, State, Subject
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


def last_steps(first: Tensor) -> Tensor:
    """Turn flags of first steps [T, B] into flags of last steps, for libraries that mark the end of an episode.

    An episode that ended before the sequence leaves no flag in it. Such libraries reset the state before they store it, so a
    `sequence` that uses this function has to start from `zero_where_first(state, first[0], slot_axis)`.
    """
    return torch.cat([first[1:], torch.zeros_like(first[:1])])


def slot_major(x: Tensor) -> Tensor:
    """Flatten [T, B, ...] to [B * T, ...], one slot after the other, as many rollout buffers do."""
    return x.transpose(0, 1).flatten(0, 1)


def time_major(outputs: Outputs, T: int, B: int) -> Outputs:
    """Undo `slot_major`: [B * T, ...] to [T, B, ...]."""
    return {name: y.unflatten(0, (B, T)).transpose(0, 1) for name, y in outputs.items()}


def joined(logits: Any) -> Tensor:
    """Return logits (a tensor, or one per action) or a normal distribution's mean and deviation as one tensor."""
    if isinstance(logits, torch.distributions.Normal):
        return torch.cat([logits.mean, logits.stddev], -1)
    return logits if isinstance(logits, Tensor) else torch.cat(list(logits), -1)
