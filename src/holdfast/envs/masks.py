"""Action masks: which actions an environment's info calls legal, checked and copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.envs.failures import BadValue
from holdfast.errors import SettingsError
from holdfast.spec import ActionSpec, BoxActions, keys


def with_masks(actions: ActionSpec, world: str) -> ActionSpec:
    """The same actions, masked; SettingsError where they are no choices."""
    if isinstance(actions, BoxActions):
        raise SettingsError(
            f"env.action_mask=true: {world} takes real numbers; only choices can be illegal.\nRemove env.action_mask."
        )
    return replace(actions, masked=True)


def refused_mask(world: str, error: BadValue) -> SettingsError:
    """What is wrong with the mask of a first reset, told before anything is trained."""
    return SettingsError(
        f"env.action_mask=true: {world} returned {error} from reset().\n"
        "The environment has to give one with every observation; if it gives none, remove env.action_mask."
    )


class MaskReader:
    """Reads `info["action_mask"]`: a 0 or 1 (or bool) per choice; of several choices one after the other."""

    def __init__(self, sizes: tuple[int, ...]):
        self._size = sum(sizes)
        self._starts = np.cumsum([0, *sizes[:-1]])

    def read(self, info: Mapping[str, Any], out: np.ndarray) -> None:
        """Write the mask into out [size] bool; BadValue when there is none or it leaves nothing to choose."""
        if info.get(keys.ACTION_MASK) is None:
            raise BadValue(f"no info[{keys.ACTION_MASK!r}]")
        self._copy(info[keys.ACTION_MASK], out)
        legal = np.logical_or.reduceat(out, self._starts)
        if not legal.all():
            which = "" if len(legal) == 1 else f" for choice {int(legal.argmin())}"
            raise BadValue(f"an action mask with no legal action{which}")

    def read_final(self, info: Mapping[str, Any], out: np.ndarray) -> None:
        """The same for an episode's last observation. Nobody acts on it: no mask means all legal, none legal is allowed."""
        if info.get(keys.ACTION_MASK) is None:
            out[:] = True
        else:
            self._copy(info[keys.ACTION_MASK], out)

    def _copy(self, mask: Any, out: np.ndarray) -> None:
        try:
            mask = np.asarray(mask)
        except ValueError as error:
            raise BadValue(f"an action mask that is no array ({error})") from error
        if mask.shape != (self._size,):
            raise BadValue(f"an action mask of shape {mask.shape}, where its action space needs ({self._size},),")
        if mask.dtype.kind not in "biuf":
            raise BadValue(f"an action mask of type {mask.dtype}, not 0 and 1,")
        out[:] = mask
        if mask.dtype != bool and not (mask == out).all():
            raise BadValue(f"an action mask with {mask[mask != out][0]}, not only 0 and 1,")
