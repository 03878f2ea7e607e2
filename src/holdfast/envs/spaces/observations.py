"""Read observations: a Box or a Discrete as it is, everything else packed into one vector with a part per leaf."""

from __future__ import annotations

import logging
import math
import multiprocessing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from gymnasium import spaces

from holdfast.envs.failures import BadValue
from holdfast.envs.spaces.leaves import Leaf, children_of, leaves_of, short, visible
from holdfast.errors import SettingsError
from holdfast.spec import BoxObs, DiscreteObs, ObsPart

logger = logging.getLogger(__name__)
MOST_CATEGORIES = 2**24  # float32 holds all integers up to this one


def obs_reader(
    space: spaces.Space,
    world: str,
    hide: Sequence[int | str] = (),
    lead: tuple[int, ...] = (),
    apart: str | None = None,
) -> BoxReader | DiscreteReader | PackedReader:
    """Return the reader for an observation space; raise SettingsError if the space is not supported.

    apart: an entry of a Dict that is read elsewhere (the action mask).
    """
    leaves = [leaf for leaf in leaves_of(space) if apart is None or leaf.path[0] != apart]
    shown = visible(leaves, hide, world)
    kept = [(leaf, keep) for leaf, keep in shown if not _is_text(leaf.space)]
    for leaf, _ in kept:
        _refuse_unsupported(leaf, world)
    if not kept:
        raise SettingsError(f"{world} has {short(space)} observations, which contain no numbers.\n{_supported()}")
    if len(kept) < len(shown):
        _report_text(world, tuple(leaf.name for leaf, _ in shown if _is_text(leaf.space)))
    if isinstance(space, spaces.Box):
        return BoxReader(space, kept[0][1], lead)
    if isinstance(space, spaces.Discrete):
        return DiscreteReader(space, lead)
    return PackedReader(space, kept, lead)


class BoxReader:
    """Read Box observations: uint8 stays uint8, every other dtype becomes float32."""

    def __init__(self, space: spaces.Box, keep: np.ndarray | None, lead: tuple[int, ...]):
        shape = space.shape if keep is None else keep.shape
        self.spec = BoxObs(shape, "uint8" if space.dtype == np.uint8 else "float32", scale=_scale(space))
        self._shape, self._dtype, self._keep = (*lead, *space.shape), space.dtype, keep

    def read(self, obs: Any, out: np.ndarray) -> None:
        if type(obs) is not np.ndarray or obs.shape != self._shape or obs.dtype != self._dtype:
            obs = _checked(obs, self._shape, self.spec.dtype)
        out[...] = obs if self._keep is None else obs[..., self._keep]


class DiscreteReader:
    """Read Discrete observations: the `start` of the space is subtracted, so symbols are counted from 0."""

    def __init__(self, space: spaces.Discrete, lead: tuple[int, ...]):
        self.spec = DiscreteObs(int(space.n))
        self._read = _Categories(Leaf((), space), None, lead).read

    def read(self, obs: Any, out: np.ndarray) -> None:
        self._read(obs, out[..., None])


class PackedReader:
    """Read all other spaces: the leaves are packed into one vector, in the order of the space.

    The vector is uint8 if every leaf fits, otherwise float32.
    """

    def __init__(self, space: spaces.Space, kept: list[tuple[Leaf, np.ndarray | None]], lead: tuple[int, ...]):
        dtype = "uint8" if all(_fits_uint8(leaf.space) for leaf, _ in kept) else "float32"
        parts: list[ObsPart] = []
        self._leaves: list[tuple[tuple[Any, ...], slice, _Numbers | _Categories]] = []
        start = 0
        for leaf, keep in kept:
            shape = tuple(leaf.space.shape or ()) if keep is None else keep.shape
            part = ObsPart(leaf.name or "obs", shape, start, _scale(leaf.space), _sizes(leaf.space, keep))
            kind = _Numbers if isinstance(leaf.space, spaces.Box) else _Categories
            self._leaves.append((leaf.path, slice(start, start + part.size), kind(leaf, keep, lead, dtype)))
            parts.append(part)
            start += part.size
        self.spec = BoxObs((start,), dtype, tuple(parts))
        self._space, self._tuples = space, _tuples_in(space)

    def read(self, obs: Any, out: np.ndarray) -> None:
        try:
            for path, length in self._tuples:
                value = obs
                for key in path:
                    value = value[key]
                if len(value) != length:
                    raise BadValue(f"{_entry(path)} with {len(value)} entries, expected {length},")
            for path, columns, leaf in self._leaves:
                value = obs
                for key in path:
                    value = value[key]
                leaf.read(value, out[..., columns])
        except (KeyError, IndexError, TypeError) as error:
            raise _wrong_structure(self._space, obs) or error from error


class _Numbers:
    """Read one Box inside a packed observation."""

    def __init__(self, leaf: Leaf, keep: np.ndarray | None, lead: tuple[int, ...], dtype: str):
        self._shape, self._dtype = (*lead, *(leaf.space.shape or ())), leaf.space.dtype
        self._flat, self._keep, self._stored, self._label = (*lead, -1), keep, dtype, leaf.label

    def read(self, value: Any, out: np.ndarray) -> None:
        if type(value) is not np.ndarray or value.shape != self._shape or value.dtype != self._dtype:
            value = _checked(value, self._shape, self._stored, self._label)
        flat = value.reshape(self._flat)
        out[...] = flat if self._keep is None else flat[..., self._keep]


class _Categories:
    """Read a Discrete, MultiDiscrete or MultiBinary as indices, counted from 0."""

    def __init__(self, leaf: Leaf, keep: np.ndarray | None, lead: tuple[int, ...], dtype: str = ""):
        space: Any = leaf.space
        self._shape, self._flat = (*lead, *space.shape), (*lead, -1)
        self._sizes = np.array(_choices(space)).reshape(-1)
        self._start = np.asarray(getattr(space, "start", 0), np.int64).reshape(-1)  # a MultiBinary has no `start`
        self._is_symbol, self._first, self._size = self._shape == (), int(self._start[0]), int(self._sizes[0])
        self._keep, self._label, self._space = keep, leaf.label, space

    def read(self, value: Any, out: np.ndarray) -> None:
        """Write the indices into `out` [*lead, number of entries]."""
        if (
            self._is_symbol
            and isinstance(value, int | np.integer)
            and 0 <= (index := int(value) - self._first) < self._size
        ):
            out[...] = index
            return
        indices = _checked(value, self._shape, "int64", self._label).reshape(self._flat) - self._start
        wrong = (indices < 0) | (indices >= self._sizes)
        if wrong.any():
            outside = (indices + self._start)[wrong][0]
            raise BadValue(f"{self._label} with the value {outside}, which is outside its space {short(self._space)},")
        out[...] = indices if self._keep is None else indices[..., self._keep]


def _choices(space: spaces.Space) -> tuple[int, ...]:
    """Return the number of values of each entry of a Discrete, MultiDiscrete or MultiBinary; () for other spaces."""
    match space:
        case spaces.Discrete():
            return (int(space.n),)
        case spaces.MultiDiscrete():
            return tuple(space.nvec.ravel().tolist())
        case spaces.MultiBinary():
            return (2,) * math.prod(space.shape)
    return ()


def _sizes(space: spaces.Space, keep: np.ndarray | None) -> tuple[int, ...]:
    """Return `ObsPart.sizes`: the bits of a MultiBinary are numbers."""
    sizes = () if isinstance(space, spaces.MultiBinary) else _choices(space)
    return sizes if keep is None or not sizes else tuple(sizes[i] for i in keep.tolist())


def _fits_uint8(space: spaces.Space) -> bool:
    if isinstance(space, spaces.Box):
        return space.dtype in (np.uint8, np.bool_)
    return max(_choices(space), default=0) <= 256


def _scale(space: spaces.Space) -> float:
    """Return the divisor for pixel values: the largest value of an image space; 1 if infinite, or for other spaces."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        return 1.0
    largest = float(np.max(space.high, initial=0.0))
    return largest if 0.0 < largest < math.inf else 1.0


def _is_text(space: spaces.Space) -> bool:
    """Whether the values are text: Text, or a space of another library such as MiniGrid's MissionSpace."""
    return isinstance(space, spaces.Text) or space.dtype == np.dtype(str)


@cache
def _report_text(world: str, names: tuple[str, ...]) -> None:
    """Log once per process that text is left out. Workers, which build the same world, stay silent."""
    if multiprocessing.parent_process() is None:
        logger.info("%s: text in observations is left out: %s.", world, ", ".join(names))


def _refuse_unsupported(leaf: Leaf, world: str) -> None:
    where = f"{world}, in its entry {leaf.name!r}," if leaf.path else world
    if not isinstance(leaf.space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        sized = isinstance(leaf.space, spaces.Graph | spaces.Sequence | spaces.OneOf)
        why = "which have no fixed size" if sized else "which are not supported"
    elif max(_choices(leaf.space), default=0) > MOST_CATEGORIES and leaf.path:
        why = f"which have more than {MOST_CATEGORIES:,} values"
    elif math.prod(leaf.space.shape or ()) == 0:
        why = "which are empty"
    else:
        return
    hint = f"Leave the entry out with env.hide=[{leaf.name}], or convert" if leaf.path else "Convert"
    raise SettingsError(
        f"{where} has {short(leaf.space)} observations, {why}.\n{_supported()} {hint} it with a gymnasium.ObservationWrapper."
    )


def _supported() -> str:
    return "Supported: Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these."


def _tuples_in(space: spaces.Space, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], int]]:
    """Return the path and the length of every Tuple."""
    found = [(path, len(space.spaces))] if isinstance(space, spaces.Tuple) else []
    return found + [inner for key, child in children_of(space) or () for inner in _tuples_in(child, (*path, key))]


def _wrong_structure(space: spaces.Space, obs: Any, path: tuple[Any, ...] = ()) -> BadValue | None:
    """Return the error for an observation that lacks an entry of its space; None if all entries are there."""
    children = children_of(space)
    if children is None:
        return None
    if not isinstance(obs, Mapping if isinstance(space, spaces.Dict) else (tuple, list, np.ndarray)):
        expected = f"although {'its space' if path else 'the observation space'} is a {type(space).__name__},"
        return BadValue(f"{_entry(path)} of type {type(obs).__name__}, {expected}")
    for key, child in children:
        here = (*path, key)
        if key not in obs if isinstance(obs, Mapping) else key >= len(obs):
            return BadValue(f"an observation without the entry {'.'.join(map(str, here))!r}")
        if error := _wrong_structure(child, obs[key], here):
            return error
    return None


def _entry(path: tuple[Any, ...]) -> str:
    return Leaf(path, spaces.Space()).label


def _checked(obs: Any, shape: tuple[int, ...], dtype: str, what: str = "an observation") -> np.ndarray:
    """Return `obs` as an array; raise BadValue if it does not have this shape or cannot be cast to `dtype`."""
    try:
        array = np.asarray(obs)
    except ValueError as error:
        raise BadValue(f"{what} that is not an array ({error})") from error
    if array.shape != shape:
        raise BadValue(f"{what} of shape {array.shape}, expected {shape},")
    if not np.can_cast(array.dtype, dtype, "safe" if dtype == "uint8" else "same_kind"):
        raise BadValue(f"{what} of dtype {array.dtype}, which cannot be cast to {dtype},")
    return array
