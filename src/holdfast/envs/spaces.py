"""Translate Gymnasium spaces to Holdfast specs, and convert observations, actions and action masks.

A reader or writer is built once per world. `lead` is () for values of one slot and (N,) for a batch of N slots.
`reader.read(obs, out)` checks the observation against its space (raises BadValue if they do not fit) and copies it
into `out` [*lead, *spec.shape], because environments may reuse their arrays.
`writer.write(actions)` converts policy actions [N, *spec.shape] to a new array [N, *the environment's action shape].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from holdfast.envs.failures import BadMask, BadValue
from holdfast.errors import NonFiniteError, SettingsError
from holdfast.spec import BoxActions, BoxObs, DiscreteActions, DiscreteObs, MultiDiscreteActions, ObsPart, keys


def obs_reader(
    space: spaces.Space, world: str, hide: Iterable[int] = (), lead: tuple[int, ...] = ()
) -> BoxReader | DiscreteReader | DictReader:
    """Return the reader for an observation space; raise SettingsError if the space is not supported."""
    hide = sorted(set(hide))
    if hide and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
        raise SettingsError(
            f"env.hide={hide}: works only for vector observations, but {world} has {_short(space)} "
            "observations.\nRemove env.hide."
        )
    if isinstance(space, spaces.Box):
        return BoxReader(space, world, hide, lead)
    if isinstance(space, spaces.Discrete):
        return DiscreteReader(space, lead)
    if isinstance(space, spaces.Dict) and space.spaces:
        if all(isinstance(part, spaces.Box) for part in space.spaces.values()):
            return DictReader(space, lead)
        entry, space = next(item for item in space.spaces.items() if not isinstance(item[1], spaces.Box))
        world = f"{world}, in its entry {entry!r},"
    raise SettingsError(
        f"{world} has {_short(space)} observations, which are not supported.\n"
        "Supported: Box, Discrete, Dict of Box. Convert the observations with a gymnasium.ObservationWrapper."
    )


class BoxReader:
    """Read Box observations: uint8 stays uint8, every other dtype becomes float32."""

    def __init__(self, space: spaces.Box, world: str, hide: list[int], lead: tuple[int, ...]):
        shape, self._keep = space.shape, None
        if hide:
            size = shape[0]
            if hide[-1] >= size:
                raise SettingsError(
                    f"env.hide={hide}: observations of {world} have {size} entries; use indices from 0 to {size - 1}."
                )
            self._keep = np.delete(np.arange(size), hide)
            shape = self._keep.shape
            if not self._keep.size:
                raise SettingsError(
                    f"env.hide={hide} hides all {size} observation entries of {world}; remove at least one index."
                )
        self.spec = BoxObs(shape, "uint8" if space.dtype == np.uint8 else "float32", scale=_scale(space))
        self._shape, self._dtype = (*lead, *space.shape), space.dtype

    def read(self, obs: Any, out: np.ndarray) -> None:
        if type(obs) is not np.ndarray or obs.shape != self._shape or obs.dtype != self._dtype:
            obs = _checked(obs, self._shape, self.spec.dtype)
        out[...] = obs if self._keep is None else obs[..., self._keep]


class DiscreteReader:
    """Read Discrete observations: the `start` of the space is subtracted, so symbols are counted from 0."""

    def __init__(self, space: spaces.Discrete, lead: tuple[int, ...]):
        self.spec = DiscreteObs(int(space.n))
        self._start, self._lead = int(space.start), lead

    def read(self, obs: Any, out: np.ndarray) -> None:
        if not self._lead and isinstance(obs, int | np.integer) and 0 <= obs - self._start < self.spec.n:
            out[...] = obs - self._start
            return
        values = _checked(obs, self._lead, "int64") - self._start
        if values.min() < 0 or values.max() >= self.spec.n:
            last = self._start + self.spec.n - 1
            raise BadValue(f"an observation {obs} outside its space ({self._start} to {last})")
        out[...] = values


class DictReader:
    """Read a Dict of Box: entries are packed into one float32 vector, in the order of the space's keys."""

    def __init__(self, space: spaces.Dict, lead: tuple[int, ...]):
        parts: list[ObsPart] = []
        start = 0
        for key, part in space.spaces.items():
            shape = tuple(part.shape or ())
            parts.append(ObsPart(str(key), shape, start, _scale(part)))
            start += math.prod(shape)
        self.spec = BoxObs((start,), "float32", tuple(parts))
        self._parts = list(zip(space.spaces, parts, strict=True))
        self._lead = lead

    def read(self, obs: Any, out: np.ndarray) -> None:
        if not isinstance(obs, Mapping):
            raise BadValue(f"an observation of type {type(obs).__name__}, although the observation space is a Dict,")
        for key, part in self._parts:
            if key not in obs:
                raise BadValue(f"an observation without the entry {key!r}")
            values = _checked(obs[key], (*self._lead, *part.shape), "float32", f"entry {key!r} of an observation")
            out[..., part.start : part.start + part.size] = values.reshape(*self._lead, part.size)


def action_writer(space: spaces.Space, world: str, first_slot: int, masked: bool = False) -> ChoiceWriter | BoxWriter:
    """Return the writer for an action space; raise SettingsError if it is unsupported, or continuous and `masked`."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return ChoiceWriter(space, masked)
    if not (isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == "f"):
        raise SettingsError(
            f"{world} has {_short(space)} actions, which are not supported.\nSupported: Discrete, MultiDiscrete, Box "
            "of real numbers. Convert the actions with a gymnasium.ActionWrapper."
        )
    if masked:
        raise SettingsError(
            f"env.action_mask=true: {world} has continuous actions (real numbers), which cannot be masked.\n"
            "Remove env.action_mask."
        )
    return BoxWriter(space, world, first_slot)


class ChoiceWriter:
    """Write Discrete or MultiDiscrete actions: the policy counts choices from 0, the environment from `start`."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete, masked: bool):
        if isinstance(space, spaces.Discrete):
            self.spec = DiscreteActions(tuple(str(choice) for choice in range(int(space.n))), masked)
        else:
            self.spec = MultiDiscreteActions(tuple(space.nvec.ravel().tolist()), masked=masked)
        self._start, self._shape, self._dtype = space.start, tuple(space.shape or ()), space.dtype

    def write(self, actions: np.ndarray) -> np.ndarray:
        shaped = actions.reshape(len(actions), *self._shape)
        return (shaped + self._start).astype(self._dtype, copy=False)


class BoxWriter:
    """Write Box actions, clipped in the dtype of the space, because 0.1 in float32 is larger than 0.1 in float64."""

    def __init__(self, space: spaces.Box, world: str, first_slot: int):
        self.spec = BoxActions(tuple(space.low.ravel().tolist()), tuple(space.high.ravel().tolist()))
        self._space, self._world, self._first_slot = space, world, first_slot

    def write(self, actions: np.ndarray) -> np.ndarray:
        finite = np.isfinite(actions)
        if not finite.all():
            row = int(np.flatnonzero(~finite.all(1))[0])
            raise NonFiniteError(
                f"{self._world}: action of slot {self._first_slot + row} is {actions[row][~finite[row]][0]}.\n"
                "The policy returned this action; the environment was not stepped. Check the policy for NaN and Inf."
            )
        space = self._space
        shaped = actions.astype(space.dtype).reshape(len(actions), *space.shape)
        return np.clip(shaped, space.low, space.high, out=shaped)


class MaskReader:
    """Read `info["action_mask"]`: 0 or 1 (or bool) per action; for MultiDiscrete, per choice of each dimension."""

    def __init__(self, sizes: tuple[int, ...]):
        self._size = sum(sizes)
        self._starts = np.cumsum([0, *sizes[:-1]])

    def read(self, info: Mapping[str, Any], out: np.ndarray) -> None:
        """Copy the action mask into `out` [size] bool; raise BadMask if the mask is missing or allows no action."""
        if info.get(keys.ACTION_MASK) is None:
            raise BadMask(f"no info[{keys.ACTION_MASK!r}]")
        self._copy(info[keys.ACTION_MASK], out)
        legal = np.logical_or.reduceat(out, self._starts)
        if not legal.all():
            which = "" if len(legal) == 1 else f" for choice {int(legal.argmin())}"
            raise BadMask(f"an action mask with no legal action{which}")

    def read_final(self, info: Mapping[str, Any], out: np.ndarray) -> None:
        """Copy the mask for an episode's last observation. It may be missing or all false, as no action follows."""
        if info.get(keys.ACTION_MASK) is None:
            out[:] = True
        else:
            self._copy(info[keys.ACTION_MASK], out)

    def _copy(self, mask: Any, out: np.ndarray) -> None:
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


def _scale(space: spaces.Space) -> float:
    """Return the divisor for pixel values: the largest value of an image space; 1 if infinite, or for other spaces."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        return 1.0
    largest = float(np.max(space.high, initial=0.0))
    return largest if 0.0 < largest < math.inf else 1.0


def _checked(obs: Any, shape: tuple[int, ...], dtype: str, what: str = "an observation") -> np.ndarray:
    """Return `obs` as an array; raise BadValue if it does not have this shape or cannot be cast to `dtype`."""
    try:
        array = np.asarray(obs)
    except ValueError as error:
        raise BadValue(f"{what} that is not an array ({error})") from error
    if array.shape != shape:
        raise BadValue(f"{what} of shape {array.shape}, expected {shape},")
    if not np.can_cast(array.dtype, dtype, "same_kind" if dtype == "float32" else "safe"):
        raise BadValue(f"{what} of dtype {array.dtype}, which cannot be cast to {dtype},")
    return array


def _short(space: spaces.Space) -> str:
    text = " ".join(str(space).split())
    return text if len(text) <= 100 else f"{text[:97]}..."
