"""Maps as lists of rows of cell names, and what can be seen of them."""

from __future__ import annotations

from random import Random

import numpy as np

Map = list[list[str]]

AGENT = "agent.agent"
OWN_TOKENS = 3  # an agent shows its tag, group and number, then one token per kind of thing it holds
GLOBAL_TOKENS = 2  # part of the episode that is over, last action


def walled(size: int) -> Map:
    """An empty square, `size` x `size` with its walls."""
    wall, inside = ["wall"] * size, ["wall", *["empty"] * (size - 2), "wall"]
    return [wall, *[inside] * (size - 2), wall]


def scatter(room: Map, things: list[str], seed: int) -> Map:
    """A copy of a walled room with `things` on different free cells."""
    cells = [row[:] for row in room]
    width = len(room[0]) - 2
    places = Random(seed).sample(range(width * (len(room) - 2)), len(things))
    for thing, place in zip(things, places, strict=True):
        cells[place // width + 1][place % width + 1] = thing
    return cells


def sight(window: int) -> list[tuple[int, int]]:
    """Offsets (rows, columns) an agent may see: MettaGrid shows a disc, a little less than this one at 15."""
    radius = window // 2
    limit = radius**2 + (radius > 1)
    around = range(-radius, radius + 1)
    return [(r, c) for r in around for c in around if r * r + c * c <= limit]


def most_in_view(weights: np.ndarray, standing: np.ndarray, window: int) -> int:
    """Largest sum of weights [H, W] seen from any cell where standing [H, W] is true."""
    radius = window // 2
    padded = np.pad(weights, radius)
    height, width = weights.shape
    seen = np.zeros_like(weights)
    for r, c in sight(window):
        seen += padded[radius + r : radius + r + height, radius + c : radius + c + width]
    return int(seen[standing].max())


def most_tokens(room: Map, thing_tokens: list[int], window: int) -> int:
    """Upper limit of the tokens in an observation, where thing i shows thing_tokens[i] and a wall one."""
    walls = np.array([[cell == "wall" for cell in row] for row in room])
    cells = len(sight(window))
    things = sorted(thing_tokens, reverse=True)[:cells]
    wall_tokens = most_in_view(walls.astype(np.int64), ~walls, window)
    return GLOBAL_TOKENS + sum(things) + min(wall_tokens, cells - len(things))
