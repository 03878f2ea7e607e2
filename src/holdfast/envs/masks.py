"""Read and check action masks, which mark the legal actions, from the info of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.envs.failures import BadValue
from holdfast.errors import SettingsError
from holdfast.spec import ActionSpec, BoxActions, keys


def with_masks(actions: ActionSpec, world: str) -> ActionSpec:
    """The same actions with masked=True; SettingsError for continuous actions."""
    if isinstance(actions, BoxActions):
        raise SettingsError(
            f"env.action_mask=true: {world} has continuous actions (real numbers), which cannot be masked.\n"
            "Remove env.action_mask."
        )
    return replace(actions, masked=True)


def refused_mask(world: str, error: BadValue) -> SettingsError:
    """The error for a missing or invalid mask at the first reset, before training starts."""
    return SettingsError(
        f"env.action_mask=true: {world} returned {error} from reset().\n"
        "The environment has to return a mask with every observation; if it has none, remove env.action_mask."
    )


class MaskReader:
    """Reads `info["action_mask"]`: 0 or 1 (or bool) per action; masks of several choices are concatenated."""

    def __init__(self, sizes: tuple[int, ...]):
        self._size = sum(sizes)
        self._starts = np.cumsum([0, *sizes[:-1]])

    def read(self, info: Mapping[str, Any], out: np.ndarray) -> None:
        """Write the mask into out [size] bool; BadValue if there is none or it allows no action."""
        if info.get(keys.ACTION_MASK) is None:
            raise BadValue(f"no info[{keys.ACTION_MASK!r}]")
        self._copy(info[keys.ACTION_MASK], out)
        legal = np.logical_or.reduceat(out, self._starts)
        if not legal.all():
            which = "" if len(legal) == 1 else f" for choice {int(legal.argmin())}"
            raise BadValue(f"an action mask with no legal action{which}")

    def read_final(self, info: Mapping[str, Any], out: np.ndarray) -> None:
        """The same for the last observation of an episode, which needs no action: no mask or all false is fine."""
        if info.get(keys.ACTION_MASK) is None:
            out[:] = True
        else:
            self._copy(info[keys.ACTION_MASK], out)

    def _copy(self, mask: Any, out: np.ndarray) -> None:
        try:
            mask = np.asarray(mask)
        except ValueError as error:
            raise BadValue(f"an action mask that is not an array ({error})") from error
        if mask.shape != (self._size,):
            raise BadValue(f"an action mask of shape {mask.shape}, expected ({self._size},),")
        if mask.dtype.kind not in "biuf":
            raise BadValue(f"an action mask of type {mask.dtype}, not 0 and 1,")
        out[:] = mask
        if mask.dtype != bool and not (mask == out).all():
            raise BadValue(f"an action mask with {mask[mask != out][0]}, not only 0 and 1,")
