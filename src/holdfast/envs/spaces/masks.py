"""Read action masks, from `info["action_mask"]` or from the entry `action_mask` of a Dict observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from holdfast.envs.failures import BadMask
from holdfast.envs.spaces.leaves import children_of
from holdfast.spec import keys


def mask_is_in(obs_space: spaces.Space, sizes: tuple[int, ...]) -> bool:
    """Whether observations are a Dict with an entry `action_mask` that has one value per choice, and other entries."""
    if not sizes or not isinstance(obs_space, spaces.Dict) or len(obs_space.spaces) < 2:
        return False
    mask = obs_space.spaces.get(keys.ACTION_MASK)
    return isinstance(mask, spaces.Box | spaces.MultiBinary) and mask.shape == (sum(sizes),)


class MaskReader:
    """Read action masks: 0 or 1 (or bool) per choice, for the choices `sizes` of all leaves one after the other.

    A nested action space may have its mask in the same structure; entries for real numbers are ignored.
    in_obs: the mask is an entry of the observation. idle: a mask without a legal action belongs to an agent that cannot
    act now, as in turn-based games, and allows every action.
    """

    def __init__(self, space: spaces.Space, sizes: tuple[int, ...], in_obs: bool = False, idle: bool = False):
        self.in_obs = in_obs
        self._space, self._idle = space, idle
        self._size = sum(sizes)
        self._starts = np.cumsum([0, *sizes[:-1]])

    def read(self, obs: Any, info: Mapping[str, Any], out: np.ndarray) -> None:
        """Copy the action mask into `out` [size] bool; raise BadMask if the mask is missing or allows no action."""
        mask = self._mask(obs, info)
        if mask is None:
            raise BadMask("no action mask in the observation" if self.in_obs else f"no info[{keys.ACTION_MASK!r}]")
        self._copy(mask, out)
        legal = np.logical_or.reduceat(out, self._starts)
        if self._idle and not legal.any():
            out[:] = True
        elif not legal.all():
            which = "" if len(legal) == 1 else f" for choice {int(legal.argmin())}"
            raise BadMask(f"an action mask with no legal action{which}")

    def read_final(self, obs: Any, info: Mapping[str, Any], out: np.ndarray) -> None:
        """Copy the mask for an episode's last observation. It may be missing or all false, as no action follows."""
        mask = self._mask(obs, info)
        if mask is None:
            out[:] = True
        else:
            self._copy(mask, out)

    def _mask(self, obs: Any, info: Mapping[str, Any]) -> Any:
        """Return the mask as it was given; None if it is missing."""
        source = obs if self.in_obs else info
        return source.get(keys.ACTION_MASK) if isinstance(source, Mapping) else None

    def _copy(self, mask: Any, out: np.ndarray) -> None:
        if isinstance(mask, Mapping | tuple):
            mask = np.concatenate([np.zeros(0, bool), *_flatten(self._space, mask)])
        try:
            mask = np.asarray(mask)
        except ValueError as error:
            raise BadMask(f"an action mask that is not an array ({error})") from error
        if mask.shape != (self._size,):
            raise BadMask(f"an action mask of shape {mask.shape}, expected ({self._size},),")
        if mask.dtype.kind not in "biuf":
            raise BadMask(f"an action mask of dtype {mask.dtype}, expected bool or 0 and 1,")
        out[:] = mask
        if mask.dtype != bool and not (mask == out).all():
            raise BadMask(f"an action mask with the value {mask[mask != out][0]}, expected only 0 and 1,")


def _flatten(space: spaces.Space, mask: Any, path: str = "") -> list[np.ndarray]:
    """Return the masks of all choices in the order of the action space. `path`: where `mask` is, for messages."""
    children = children_of(space)
    if children is not None:
        if isinstance(mask, tuple | list):
            mask = dict(enumerate(mask))
        if not isinstance(mask, Mapping) or set(mask) - {key for key, _ in children}:
            raise BadMask(f"an action mask{path} without the structure of the {type(space).__name__} of actions")
        return [x for key, child in children for x in _flatten(child, mask.get(key), f"{path}[{key!r}]")]
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == "f":
        return []
    if mask is None:
        raise BadMask(f"an action mask without the entry {path}")
    try:
        found = [np.asarray(x).ravel() for x in (mask if isinstance(mask, tuple) else (mask,))]
    except ValueError as error:
        raise BadMask(f"an action mask{path} that is not an array ({error})") from error
    if (size := sum(map(len, found))) != (expected := _num_choices(space)):
        raise BadMask(f"an action mask{path} with {size} values, expected {expected},")
    return found


def _num_choices(space: Any) -> int:
    """Return the number of mask entries for a leaf of an action space."""
    match space:
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(space.nvec.sum())
        case spaces.MultiBinary():
            return 2 * int(np.prod(space.shape))
    return int((space.high.astype(np.int64) - space.low.astype(np.int64) + 1).sum())  # a Box of integers
