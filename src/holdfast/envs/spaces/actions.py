"""Write actions in the form of the environment's action space: Discrete, MultiDiscrete, MultiBinary, Box, nested."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from holdfast.envs.spaces.leaves import Leaf, leaves_of, short
from holdfast.errors import NonFiniteError, SettingsError
from holdfast.spec import ActionSpec, BoxActions, DiscreteActions, MixedActions, MultiDiscreteActions

LARGEST = float(np.finfo(np.float32).max)
MOST_INTEGERS = 256  # a bounded integer with at most this many values is a choice


@dataclass(frozen=True)
class Choices:
    """A leaf whose entries are choices; choice 0 is the value `start`."""

    sizes: tuple[int, ...]
    start: np.ndarray  # has the shape of the space
    space: spaces.Space

    def write(self, columns: np.ndarray) -> np.ndarray:
        """Return the batch of values for the choices [N, len(sizes)]."""
        shaped = columns.reshape(len(columns), *self.start.shape)
        return (shaped.astype(np.int64, copy=False) + self.start).astype(self.space.dtype, copy=False)


@dataclass(frozen=True)
class Reals:
    """A Box of real numbers, clipped in the dtype of the space, because 0.1 in float32 is larger than 0.1 in float64."""

    space: spaces.Box

    def write(self, columns: np.ndarray) -> np.ndarray:
        space = self.space
        shaped = columns.astype(space.dtype).reshape(len(columns), *space.shape)
        return np.clip(shaped, space.low, space.high, out=shaped)


class ActionWriter:
    """Write policy actions [N, *spec.shape]: the choices of all leaves, then the real numbers of all leaves.

    Raise SettingsError if the space is not supported.
    """

    def __init__(self, space: spaces.Space, world: str, first_slot: int):
        leaves = [_read_leaf(leaf, world) for leaf in leaves_of(space)]
        self.sizes = tuple(size for leaf in leaves if isinstance(leaf, Choices) for size in leaf.sizes)
        boxes = [leaf.space for leaf in leaves if isinstance(leaf, Reals)]
        if not self.sizes and not boxes:
            raise SettingsError(f"{world} has {short(space)} actions: there is nothing to choose.")
        self.spec = _spec(space, self.sizes, boxes)
        self._world, self._first_slot = world, first_slot
        self._nested = isinstance(space, spaces.Dict | spaces.Tuple)
        self._batch_space = batch_space(space, 1) if self._nested else space
        self._build = _builder(space, self._placed(leaves))
        self._has_reals = bool(boxes)

    def write(self, actions: np.ndarray) -> Any:
        """Return the actions as one batch: an array [N, ...] for each leaf, in the Dicts and Tuples of the space."""
        columns = actions.reshape(len(actions), -1)
        if self._has_reals:
            self._check_finite(columns)
        return self._build(columns)

    def rows(self, actions: np.ndarray) -> Iterable[Any]:
        """Return N single actions."""
        batch = self.write(actions)
        return iterate(self._batch_space, batch) if self._nested else batch

    def _placed(self, leaves: list[Choices | Reals]) -> Iterable[tuple[Choices | Reals, slice]]:
        """Yield each leaf with its columns of the policy's actions."""
        choice, real = 0, len(self.sizes)
        for leaf in leaves:
            if isinstance(leaf, Choices):
                yield leaf, slice(choice, choice := choice + len(leaf.sizes))
            else:
                yield leaf, slice(real, real := real + leaf.space.low.size)

    def _check_finite(self, columns: np.ndarray) -> None:
        finite = np.isfinite(columns)
        if not finite.all():
            row = int(np.flatnonzero(~finite.all(1))[0])
            raise NonFiniteError(
                f"{self._world}: action of slot {self._first_slot + row} is {columns[row][~finite[row]][0]}.\n"
                "The policy returned this action; the environment was not stepped. Check the policy for NaN and Inf."
            )


def _spec(space: spaces.Space, sizes: tuple[int, ...], boxes: list[spaces.Box]) -> ActionSpec:
    # infinite limits become the largest number: a checkpoint stores the spec as JSON, which has no infinity
    low, high = (
        tuple(x for box in boxes for x in np.clip(getattr(box, side), -LARGEST, LARGEST).ravel().tolist())
        for side in ("low", "high")
    )
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(tuple(str(choice) for choice in range(sizes[0])))
    if not low:
        return MultiDiscreteActions(sizes)
    return MixedActions(sizes, low, high) if sizes else BoxActions(low, high)


def _builder(space: spaces.Space, leaves: Iterable[tuple[Choices | Reals, slice]]) -> Callable[[np.ndarray], Any]:
    """Return a function that builds a batch in the structure of the space from columns [N, choices + reals]."""
    placed = iter(leaves)

    def build(space: spaces.Space) -> Callable[[np.ndarray], Any]:
        if isinstance(space, spaces.Dict):
            entries = {key: build(child) for key, child in space.spaces.items()}
            return lambda columns: {key: entry(columns) for key, entry in entries.items()}
        if isinstance(space, spaces.Tuple):
            children = [build(child) for child in space.spaces]
            return lambda columns: tuple([child(columns) for child in children])
        leaf, place = next(placed)
        return lambda columns: leaf.write(columns[:, place])

    return build(space)


def _read_leaf(leaf: Leaf, world: str) -> Choices | Reals:
    space = leaf.space
    match space:
        case spaces.Discrete():
            return Choices((int(space.n),), np.asarray(space.start), space)
        case spaces.MultiDiscrete():
            return Choices(tuple(space.nvec.ravel().tolist()), space.start, space)
        case spaces.MultiBinary():
            return Choices((2,) * int(np.prod(space.shape)), np.zeros(space.shape, np.int64), space)
        case spaces.Box() if space.low.size and np.dtype(space.dtype).kind == "f":
            return Reals(space)
        case spaces.Box() if space.low.size and (counts := _counts(space)) is not None:
            return Choices(counts, space.low.astype(np.int64), space)
    where = f"{world}, in the entry {leaf.name!r} of its actions," if leaf.path else world
    raise SettingsError(
        f"{where} has {short(space)} actions, which are not supported.\nSupported: Discrete, MultiDiscrete, MultiBinary, "
        f"Box of real numbers or of integers with at most {MOST_INTEGERS} values, and Dict and Tuple of these. Convert "
        "the actions with a gymnasium.ActionWrapper."
    )


def _counts(space: spaces.Box) -> tuple[int, ...] | None:
    """Return the number of values of each integer; None if one of them has too many."""
    limits = zip(space.low.ravel().tolist(), space.high.ravel().tolist(), strict=True)
    counts = tuple(int(high) - int(low) + 1 for low, high in limits)
    return counts if max(counts) <= MOST_INTEGERS else None
