"""Base classes for MettaGrid settings and games, and functions for maps. A map is a list of rows of cell names."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from holdfast.config.sections import EnvSection
from holdfast.errors import SettingsError

if TYPE_CHECKING:
    import numpy as np

    from holdfast.envs.mettagrid.api import GameConfig
    from holdfast.spec import WorldSpec

Map = list[list[str]]

AGENT = "agent.agent"
OWN_TOKENS = 3  # tokens of an agent: tag, group, number; plus one for each resource that the agent holds
GLOBAL_TOKENS = 2  # tokens for the progress of the episode and the last action
Window = Literal[3, 5, 7, 9, 11, 13, 15]


class Game(Protocol):
    """A game: `config` holds the rules; `map(seed)` returns the map for an episode."""

    config: GameConfig

    def map(self, seed: int) -> Map: ...


class ScatterGame:
    """A game with objects on random cells of a walled room. `things` maps each count setting to a cell name."""

    config: GameConfig

    def __init__(self, settings: Any, things: dict[str, str]):
        self._room = walled(settings.size)
        counts = {key: getattr(settings, key) for key in things}
        self._things = [things[key] for key, count in counts.items() for _ in range(count)]
        num_cells = (settings.size - 2) ** 2
        if len(self._things) > num_cells:
            *others, last = (f"env.{key}={count}" for key, count in counts.items())
            raise SettingsError(
                f"{', '.join(others)} and {last} do not fit into the {num_cells} free cells of a map "
                f"with env.size={settings.size}. Use a larger env.size or smaller numbers."
            )

    def map(self, seed: int) -> Map:
        return scatter(self._room, self._things, seed)


class MettaGridEnv(EnvSection):
    """Settings for a MettaGrid world. Subclasses add settings and implement `game`."""

    usual_agent: ClassVar[str] = "fast"
    known_deterministic: ClassVar[bool] = True

    def game(self) -> Game:
        raise NotImplementedError

    def games(self) -> Callable[[int, int, int], Game]:
        """Return a function of (environment, episode, seed) for the game of an episode: here the same for all."""
        game = self.game()
        return lambda env, episode, seed: game

    def spec_of(self, game: Game) -> WorldSpec:
        """Return the observation and action specs of a game."""
        from holdfast.envs.mettagrid.layout import describe_game

        return describe_game(self.name, game)

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.mettagrid.adapter import MettaGridWorld

        return MettaGridWorld(self, env_ids, buffers)


def walled(size: int) -> Map:
    """Return an empty room of `size` x `size` cells, including the walls."""
    wall, inside = ["wall"] * size, ["wall", *["empty"] * (size - 2), "wall"]
    return [wall, *[inside] * (size - 2), wall]


def scatter(room: Map, things: list[str], seed: int) -> Map:
    """Return a copy of a walled room with `things` on random free cells."""
    cells = [row[:] for row in room]
    width = len(room[0]) - 2
    places = Random(seed).sample(range(width * (len(room) - 2)), len(things))
    for thing, place in zip(things, places, strict=True):
        cells[place // width + 1][place % width + 1] = thing
    return cells


def sight(window: int) -> list[tuple[int, int]]:
    """Return the (row, column) offsets of visible cells: a disc (for window 15 slightly larger than MettaGrid's)."""
    radius = window // 2
    limit = radius**2 + (radius > 1)
    around = range(-radius, radius + 1)
    return [(r, c) for r in around for c in around if r * r + c * c <= limit]


def most_in_view(weights: np.ndarray, positions: np.ndarray, window: int) -> int:
    """Return the largest sum of `weights` [H, W] visible from any cell where `positions` [H, W] is true."""
    import numpy as np

    radius = window // 2
    padded = np.pad(weights, radius)
    height, width = weights.shape
    seen = np.zeros_like(weights)
    for r, c in sight(window):
        seen += padded[radius + r : radius + r + height, radius + c : radius + c + width]
    return int(seen[positions].max())


def most_tokens(room: Map, thing_tokens: list[int], window: int) -> int:
    """Return an upper bound on tokens per observation. Object i has `thing_tokens[i]` tokens, a wall has one."""
    import numpy as np

    walls = np.array([[cell == "wall" for cell in row] for row in room])
    cells = len(sight(window))
    things = sorted(thing_tokens, reverse=True)[:cells]
    wall_tokens = most_in_view(walls.astype(np.int64), ~walls, window)
    return GLOBAL_TOKENS + sum(things) + min(wall_tokens, cells - len(things))
