"""What an environment looks like: a grid with objects, or what a Gymnasium environment renders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class GridObject(NamedTuple):
    """An object of a grid world. agent: its number in the environment, or -1. vibe: "" if it shows none."""

    id: int
    kind: str
    row: int
    column: int
    agent: int
    vibe: str
    inventory: Mapping[str, int]


class GridPicture(NamedTuple):
    """A grid and its objects."""

    height: int
    width: int
    objects: list[GridObject]


def rendered(env: Any) -> np.ndarray | None:
    """Return the RGB array [height, width, 3] that the environment renders; None if it does not."""
    if getattr(env, "render_mode", None) != "rgb_array":
        return None
    frame = np.asarray(env.render())
    if frame.ndim != 3 or frame.shape[-1] not in (3, 4) or frame.dtype != np.uint8 or not frame.size:
        return None
    return frame[..., :3]
