"""The leaves of a nested space, their names, and which of them `env.hide` hides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from holdfast.errors import SettingsError, name_some


@dataclass(frozen=True)
class Leaf:
    """A space without subspaces, somewhere inside Dicts and Tuples."""

    path: tuple[Any, ...]  # keys of Dicts and indices of Tuples, from the top; () if the space is not nested
    space: spaces.Space

    @property
    def name(self) -> str:
        """The path with dots: "inventory.gold", "0.image"; "" if the space is not nested."""
        return ".".join(map(str, self.path))

    @property
    def label(self) -> str:
        """The leaf in an error message."""
        return f"entry {self.name!r} of an observation" if self.path else "an observation"


def children_of(space: spaces.Space) -> list[tuple[Any, spaces.Space]] | None:
    """Return the keys and subspaces of a Dict or a Tuple; None for other spaces."""
    if isinstance(space, spaces.Dict):
        return [*space.spaces.items()]
    return [*enumerate(space.spaces)] if isinstance(space, spaces.Tuple) else None


def leaves_of(space: spaces.Space, path: tuple[Any, ...] = ()) -> list[Leaf]:
    """Return the leaves in the order of the space."""
    children = children_of(space)
    if children is None:
        return [Leaf(path, space)]
    return [leaf for key, child in children for leaf in leaves_of(child, (*path, key))]


def visible(leaves: list[Leaf], hide: Sequence[int | str], world: str) -> list[tuple[Leaf, np.ndarray | None]]:
    """Return the leaves that are not hidden, each with the indices of the entries to keep (None: all).

    An item of `hide` is the name of an entry, which hides everything inside, or NAME.INDEX for an entry of a vector. In
    an observation that is not nested it is just the index. Raise SettingsError if it names nothing, or if all is hidden.
    """
    shown = f"env.hide=[{', '.join(map(str, hide))}]"
    hidden: list[set[int] | None] = [set() for _ in leaves]  # None: the whole leaf
    for item in map(str, hide):
        found = False
        for i, leaf in enumerate(leaves):
            index = _index_in(leaf, item)
            if leaf.path and f"{leaf.name}.".startswith(f"{item}."):
                hidden[i], found = None, True
            elif index is not None:
                found = True
                if (others := hidden[i]) is not None:
                    others.add(index)
        if not found:
            raise SettingsError(f"{shown}: {_why_not_found(leaves, item, world)}")
    kept: list[tuple[Leaf, np.ndarray | None]] = []
    for leaf, indices in zip(leaves, hidden, strict=True):
        keep = np.delete(np.arange(_length(leaf) or 0), sorted(indices)) if indices else None
        if indices is not None and (keep is None or keep.size):
            kept.append((leaf, keep))
    if hide and not kept:
        count = len(leaves) if leaves[0].path else _length(leaves[0])
        raise SettingsError(f"{shown} hides all {count} observation entries of {world}; remove at least one of them.")
    return kept


def short(space: spaces.Space) -> str:
    """Return the space as text on one line of at most 100 characters."""
    text = " ".join(str(space).split())
    return text if len(text) <= 100 else f"{text[:97]}..."


def _length(leaf: Leaf) -> int | None:
    """Return the number of entries of a vector; None if the leaf is not a vector."""
    is_vector = isinstance(leaf.space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary)
    return leaf.space.shape[0] if is_vector and leaf.space.shape and len(leaf.space.shape) == 1 else None


def _index_in(leaf: Leaf, item: str) -> int | None:
    """Return the index of the vector entry that `item` names; None if it names none."""
    prefix = f"{leaf.name}." if leaf.path else ""
    digits = item.removeprefix(prefix)
    is_index = item.startswith(prefix) and digits.isdecimal() and len(digits) < 10
    return int(digits) if is_index and int(digits) < (_length(leaf) or 0) else None


def _why_not_found(leaves: list[Leaf], item: str, world: str) -> str:
    if len(leaves) != 1 or leaves[0].path:
        names = name_some((leaf.name for leaf in leaves), 20)
        return f"observations of {world} have no entry {item}. Entries: {names}."
    length = _length(leaves[0])
    if length is None:
        return (
            f"works only for vectors, Dicts and Tuples, but {world} has {short(leaves[0].space)} observations.\n"
            "Remove env.hide."
        )
    return f"observations of {world} have {length} entries; use indices from 0 to {length - 1}."
