"""Maps as lists of rows of cell names, and the number of tokens an agent can see in them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Map = list[list[str]]

AGENT = "agent.agent"
OWN_TOKENS = 3  # tag, group and number of an agent; one more for each resource it holds
GLOBAL_TOKENS = 2  # progress of the episode, last action


def walled(size: int) -> Map:
    """An empty room, `size` x `size` including its walls."""
    wall, inside = ["wall"] * size, ["wall", *["empty"] * (size - 2), "wall"]
    return [wall, *[inside] * (size - 2), wall]


def scatter(room: Map, things: list[str], seed: int) -> Map:
    """A copy of a walled room with `things` on random free cells."""
    cells = [row[:] for row in room]
    width = len(room[0]) - 2
    places = Random(seed).sample(range(width * (len(room) - 2)), len(things))
    for thing, place in zip(things, places, strict=True):
        cells[place // width + 1][place % width + 1] = thing
    return cells


def sight(window: int) -> list[tuple[int, int]]:
    """Offsets (rows, columns) of the cells an agent sees: a disc (at window 15 slightly larger than MettaGrid's)."""
    radius = window // 2
    limit = radius**2 + (radius > 1)
    around = range(-radius, radius + 1)
    return [(r, c) for r in around for c in around if r * r + c * c <= limit]


def most_in_view(weights: np.ndarray, positions: np.ndarray, window: int) -> int:
    """Largest sum of weights [H, W] seen from any cell where positions [H, W] is true."""
    import numpy as np

    radius = window // 2
    padded = np.pad(weights, radius)
    height, width = weights.shape
    seen = np.zeros_like(weights)
    for r, c in sight(window):
        seen += padded[radius + r : radius + r + height, radius + c : radius + c + width]
    return int(seen[positions].max())


def most_tokens(room: Map, thing_tokens: list[int], window: int) -> int:
    """Upper limit of the tokens in an observation, if thing i shows thing_tokens[i] tokens and a wall one."""
    import numpy as np

    walls = np.array([[cell == "wall" for cell in row] for row in room])
    cells = len(sight(window))
    things = sorted(thing_tokens, reverse=True)[:cells]
    wall_tokens = most_in_view(walls.astype(np.int64), ~walls, window)
    return GLOBAL_TOKENS + sum(things) + min(wall_tokens, cells - len(things))
