"""What a page stores of the observations of a world that cannot be drawn otherwise: images reduced, vectors cut."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.spec import BoxObs, WorldSpec

MAX_BYTES = 30_000  # of one observation
MAX_STEP_BYTES = 60_000  # of the observations of all agents at one step


@dataclass(frozen=True)
class _Part:
    """An array in an observation, of which every stride-th row and column is stored."""

    name: str
    shape: tuple[int, ...]
    stride: int = 1

    @property
    def sides(self) -> slice:
        """Return which axes are rows and columns; none if the part is not an image. As in assets/observation.js."""
        if len(self.shape) == 3 and min(self.shape[1:]) > 4 and self.shape[0] <= 4:
            return slice(1, 3)
        if (len(self.shape) == 3 and self.shape[2] <= 4) or len(self.shape) == 2:
            return slice(0, 2)
        return slice(0)

    @property
    def kept(self) -> tuple[slice, ...]:
        """Return what is stored, as an index."""
        axes = range(len(self.shape))[self.sides]
        return tuple(slice(None, None, self.stride if axis in axes else 1) for axis in range(len(self.shape)))

    @property
    def stored_shape(self) -> list[int]:
        return [len(range(size)[kept]) for size, kept in zip(self.shape, self.kept, strict=True)]

    @property
    def size(self) -> int:
        return math.prod(self.stored_shape)

    @property
    def reducible(self) -> bool:
        return max(self.stored_shape[self.sides], default=1) > 1

    def describe(self) -> dict[str, Any]:
        name = self.name if self.stride == 1 else f"{self.name}, 1 of {self.stride**2} pixels"
        return {"name": name, "shape": self.stored_shape}


def stored_bytes(spec: WorldSpec) -> int:
    """Return how many bytes a page stores of the observations of all agents at one step."""
    parts = _stored_parts(spec)
    size = _most_numbers(spec) if parts is None else sum(part.size for part in parts)
    return spec.agents_per_env * size * _stored_type(spec).itemsize


def describe_parts(spec: WorldSpec) -> list[dict[str, Any]]:
    """Return name and shape of each part of a stored observation."""
    parts = _stored_parts(spec)
    if parts is None:
        most = _most_numbers(spec)
        return [{"name": f"first {most:,} numbers", "shape": [most]}]
    return [part.describe() for part in parts]


def stored_observations(spec: WorldSpec, values: np.ndarray) -> np.ndarray:
    """Return what is stored of observations [T, A, ...], as `describe_parts` says; of one part, in its shape."""
    steps, (parts, stored) = values.shape[:2], (_stored_parts(spec), _stored_type(spec))
    if parts is None:
        return values.reshape(*steps, -1)[..., : _most_numbers(spec)].astype(stored)
    if len(parts) == 1:
        return values.reshape(*steps, *parts[0].shape)[(..., *parts[0].kept)].astype(stored)
    ends = np.cumsum([math.prod(part.shape) for part in parts])[:-1]
    pieces = np.split(values.reshape(*steps, -1), ends, axis=-1)
    kept = [
        piece.reshape(*steps, *part.shape)[(..., *part.kept)].reshape(*steps, -1)
        for part, piece in zip(parts, pieces, strict=True)
    ]
    return np.concatenate(kept, -1).astype(stored)


def _stored_type(spec: WorldSpec) -> np.dtype[Any]:
    if spec.obs.dtype == "uint8":
        return np.dtype(np.uint8)
    return np.dtype(np.float32 if isinstance(spec.obs, BoxObs) else np.int32)


def _most_numbers(spec: WorldSpec) -> int:
    """Return how many numbers of one observation are stored at most."""
    return max(1, min(MAX_BYTES, MAX_STEP_BYTES // spec.agents_per_env) // _stored_type(spec).itemsize)


def _stored_parts(spec: WorldSpec) -> list[_Part] | None:
    """Return the parts of an observation with images reduced until all fit; None if that does not suffice."""
    found = getattr(spec.obs, "parts", ())
    parts = [_Part(part.name, tuple(part.shape)) for part in found] or [_Part("observation", tuple(spec.obs.shape))]
    while sum(part.size for part in parts) > _most_numbers(spec):
        images = [part for part in parts if part.reducible]
        if not images:
            return None
        largest = max(images, key=lambda part: part.size)
        parts[parts.index(largest)] = _Part(largest.name, largest.shape, largest.stride + 1)
    return parts
