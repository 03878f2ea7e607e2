"""Translate Gymnasium spaces to our specs, and convert observations and actions accordingly.

A reader or writer is built once per world. `lead` is () for values of one slot and (N,) for a batch of N slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from holdfast.envs.failures import BadValue
from holdfast.errors import NonFiniteError, SettingsError
from holdfast.spec import (
    ActionSpec,
    BoxActions,
    BoxObs,
    DiscreteActions,
    DiscreteObs,
    MultiDiscreteActions,
    ObsPart,
    ObsSpec,
)


class ObsReader(Protocol):
    """Checks an observation against its space and copies it, because environments may reuse their arrays."""

    @property
    def spec(self) -> ObsSpec: ...

    def read(self, obs: Any, out: np.ndarray) -> None:
        """Write obs into out [*lead, *spec.shape]; BadValue if obs does not fit the space."""
        ...


class ActionWriter(Protocol):
    """Converts rows of our action array to actions of the environment."""

    @property
    def spec(self) -> ActionSpec: ...

    def write(self, actions: np.ndarray) -> np.ndarray:
        """actions [N, *spec.shape] -> a new array [N, *the environment's action shape]."""
        ...


def obs_reader(space: spaces.Space, world: str, hide: Iterable[int] = (), lead: tuple[int, ...] = ()) -> ObsReader:
    """The reader for an observation space; SettingsError if the space is not supported."""
    hide = sorted(set(hide))
    if hide and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
        raise SettingsError(
            f"env.hide={hide}: works for vector observations only, but those of {world} are {_short(space)}.\n"
            "Remove env.hide."
        )
    if isinstance(space, spaces.Box):
        return BoxReader(space, world, hide, lead)
    if isinstance(space, spaces.Discrete):
        return DiscreteReader(space, lead)
    if isinstance(space, spaces.Dict) and space.spaces:
        if all(isinstance(part, spaces.Box) for part in space.spaces.values()):
            return DictReader(space, lead)
        odd = {key: part for key, part in space.spaces.items() if not isinstance(part, spaces.Box)}
        space = next(iter(odd.values()))
        world = f"{world}, in its entry {next(iter(odd))!r},"
    raise SettingsError(
        f"{world} has {_short(space)} observations, which are not supported.\n"
        "Supported: Box, Discrete, Dict of Box. A gymnasium.ObservationWrapper can convert to one of them."
    )


class BoxReader:
    """A Box: uint8 stays uint8, every other type becomes float32."""

    def __init__(self, space: spaces.Box, world: str, hide: list[int], lead: tuple[int, ...]):
        keep = None
        shape = space.shape
        if hide:
            size = shape[0]
            if hide[-1] >= size:
                raise SettingsError(
                    f"env.hide={hide}: {world} shows {size} numbers; allowed are entries 0 to {size - 1}."
                )
            keep = np.array([entry for entry in range(size) if entry not in hide], dtype=np.int64)
            if not len(keep):
                raise SettingsError(f"env.hide={hide} hides all {size} numbers of {world}; leave at least one.")
            shape = (len(keep),)
        self.spec = BoxObs(shape, _stored_dtype(space), scale=_scale(space))
        self._keep = keep
        self._shape = (*lead, *space.shape)
        self._dtype = space.dtype

    def read(self, obs: Any, out: np.ndarray) -> None:
        if type(obs) is not np.ndarray or obs.shape != self._shape or obs.dtype != self._dtype:
            obs = _checked(obs, self._shape, self.spec.dtype)
        out[...] = obs if self._keep is None else obs[..., self._keep]


class DiscreteReader:
    """A Discrete: its `start` is subtracted, so symbols are counted from 0."""

    def __init__(self, space: spaces.Discrete, lead: tuple[int, ...]):
        self.spec = DiscreteObs(int(space.n))
        self._start = int(space.start)
        self._lead = lead

    def read(self, obs: Any, out: np.ndarray) -> None:
        if not self._lead and isinstance(obs, int | np.integer) and 0 <= obs - self._start < self.spec.n:
            out[...] = obs - self._start
            return
        values = _checked(obs, self._lead, "int64") - self._start
        if values.min() < 0 or values.max() >= self.spec.n:
            last = self._start + self.spec.n - 1
            raise BadValue(f"observation {obs}, outside its space ({self._start} to {last}),")
        out[...] = values


class DictReader:
    """A Dict of Box: packed into one float32 vector in the order of the space's keys."""

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
            raise BadValue(f"an observation of type {type(obs).__name__}, but its space is a Dict,")
        for key, part in self._parts:
            if key not in obs:
                raise BadValue(f"an observation without the entry {key!r}")
            values = _checked(obs[key], (*self._lead, *part.shape), "float32", f"entry {key!r} of an observation")
            out[..., part.start : part.start + part.size] = values.reshape(*self._lead, part.size)


def action_writer(space: spaces.Space, world: str, first_slot: int) -> ActionWriter:
    """The writer for an action space; SettingsError if the space is not supported."""
    if isinstance(space, spaces.Discrete):
        return DiscreteWriter(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscreteWriter(space)
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == "f":
        return BoxWriter(space, world, first_slot)
    raise SettingsError(
        f"{world} has {_short(space)} actions, which are not supported.\n"
        "Supported: Discrete, MultiDiscrete, Box of real numbers. A gymnasium.ActionWrapper can convert to one of them."
    )


class DiscreteWriter:
    def __init__(self, space: spaces.Discrete):
        self.spec = DiscreteActions(tuple(str(choice) for choice in range(int(space.n))))
        self._start, self._dtype = int(space.start), space.dtype

    def write(self, actions: np.ndarray) -> np.ndarray:
        return (actions + self._start).astype(self._dtype, copy=False)


class MultiDiscreteWriter:
    def __init__(self, space: spaces.MultiDiscrete):
        self.spec = MultiDiscreteActions(tuple(int(size) for size in space.nvec.ravel()))
        self._start, self._shape, self._dtype = space.start, space.nvec.shape, space.dtype

    def write(self, actions: np.ndarray) -> np.ndarray:
        shaped = actions.reshape(len(actions), *self._shape)
        return (shaped + self._start).astype(self._dtype, copy=False)


class BoxWriter:
    """Clips in the precision of the space: 0.1 in float32 is larger than 0.1 in float64."""

    def __init__(self, space: spaces.Box, world: str, first_slot: int):
        self.spec = BoxActions(tuple(space.low.ravel().tolist()), tuple(space.high.ravel().tolist()))
        self._space, self._world, self._first_slot = space, world, first_slot

    def write(self, actions: np.ndarray) -> np.ndarray:
        finite = np.isfinite(actions)
        if not finite.all():
            row = int(np.flatnonzero(~finite.all(1))[0])
            raise NonFiniteError(
                f"{self._world}: action of slot {self._first_slot + row} is "
                f"{actions[row][~finite[row]][0]}.\n"
                "It comes from the policy; the environment was not stepped."
            )
        space = self._space
        shaped = actions.astype(space.dtype).reshape(len(actions), *space.shape)
        return np.clip(shaped, space.low, space.high, out=shaped)


def _scale(space: spaces.Space) -> float:
    """Divisor for images: the largest value of the space if finite. 1 for anything that is not an image."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        return 1.0
    largest = float(np.max(space.high, initial=0.0))
    return largest if 0.0 < largest < math.inf else 1.0


def _stored_dtype(space: spaces.Box) -> str:
    return "uint8" if space.dtype == np.uint8 else "float32"


def _checked(obs: Any, shape: tuple[int, ...], dtype: str, what: str = "an observation") -> np.ndarray:
    """obs as an array; BadValue if it has another shape or cannot be cast to `dtype` (floats: up to rounding)."""
    try:
        array = np.asarray(obs)
    except ValueError as error:
        raise BadValue(f"{what} that is not an array ({error})") from error
    if array.shape != shape:
        raise BadValue(f"{what} of shape {array.shape}, expected {shape},")
    if not np.can_cast(array.dtype, dtype, "same_kind" if dtype == "float32" else "safe"):
        raise BadValue(f"{what} of type {array.dtype}, which cannot be cast to {dtype},")
    return array


def _short(space: spaces.Space) -> str:
    text = " ".join(str(space).split())
    return text if len(text) <= 100 else f"{text[:97]}..."
