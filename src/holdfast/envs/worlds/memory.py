"""memory: sealed T-mazes, one agent each. A cue at t=0 shows which of two identical doors gives reward 1.

    wall wall  wall  door
    cue  agent ...   ...   wall      `corridor`: number of steps from the agent to the cell between the doors
    wall wall  wall  door

The cue disappears before the second observation, so the choice needs memory: the best mean return is 1.0 with memory
and 0.5 without. Observations contain neither the time nor the last action; otherwise an agent without memory could wait
one step if the cue points up, and later infer the cue from the time.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, setting, world_name
from holdfast.envs.mettagrid.game import AGENT, OWN_TOKENS, Map, MettaGridEnv, Window, most_in_view

if TYPE_CHECKING:
    from holdfast.envs.mettagrid.api import GameConfig, GridObjectConfig


@WORLDS.register("memory")
class MemoryEnv(MettaGridEnv):
    name: str = world_name("memory", "T-mazes: a cue at the start shows which door gives the reward")
    num_envs: Count = setting(8, "number of environments; slots = num_envs x rooms", le=65536)
    rooms: Count = setting(8, "number of mazes per environment, one agent each", le=64)
    corridor: Count = setting(3, "number of steps between the cue and the doors", le=200)
    window: Window = setting(3, "side length of the observation window in cells")

    def game(self) -> MemoryGame:
        return MemoryGame(self)


def episode_length(corridor: int) -> int:
    """Return the number of steps per episode.

    Up to `corridor` 8, a random walk finds the right door in about 5% of episodes.

    The time that a random walk needs grows with the square of the distance. For longer corridors the number of steps is
    limited to six times the distance, so that a batch does not consist mostly of steps after the choice.
    """
    return min(3 * corridor**2 // 4, 6 * corridor) + 4


def maze(corridor: int, *, up: bool) -> Map:
    """Return the map of one maze: 3 rows, each `corridor + 3` cells wide."""
    walls = ["wall"] * (corridor + 1)
    doors = ("door_good", "door_bad") if up else ("door_bad", "door_good")
    return [
        [*walls, doors[0], "empty"],
        ["cue_up" if up else "cue_down", AGENT, *["empty"] * corridor, "wall"],
        [*walls, doors[1], "empty"],
    ]


class MemoryGame:
    def __init__(self, settings: MemoryEnv):
        self._rooms = settings.rooms
        mazes = [maze(settings.corridor, up=up) for up in (False, True)]
        # Enough empty rows between mazes that the window of an agent never reaches another maze.
        gap = max(0, settings.window // 2 - 1)
        self._mazes = [[*rows, *[["empty"] * len(rows[0])] * gap] for rows in mazes]
        self.config = _config(settings, _num_tokens(mazes[0], settings.window))

    def map(self, seed: int) -> Map:
        """Return a map of mazes below each other, each with a random cue. Mazes share row lists: a map is only read."""
        ups = Random(seed).getrandbits(self._rooms)
        return [row for room in range(self._rooms) for row in self._mazes[ups >> room & 1]]


def _num_tokens(rows: Map, window: int) -> int:
    """Return the largest number of tokens in an observation.

    The token for the cue's vibe is not counted: it exists only at t=0, when the agent holds no resources.
    """
    import numpy as np

    cells = np.array(rows)
    positions = np.zeros(cells.shape, bool)
    positions[1, 1:-1] = True
    seen = most_in_view((~positions & (cells != "empty")).astype(np.int64), positions, window)
    return OWN_TOKENS + 2 + seen  # 2: the agent may hold `heart` and `chosen`


def _config(settings: MemoryEnv, num_tokens: int) -> GameConfig:
    from holdfast.envs.mettagrid import api as mg
    from holdfast.envs.mettagrid.layout import make_config

    not_yet = mg.isNot(mg.actorHas({"chosen": 1}))

    def door(map_name: str, gives: dict[str, int]) -> GridObjectConfig:
        handler = mg.Handler(filters=[not_yet], mutations=[mg.updateActor({"chosen": 1, **gives})])
        return mg.GridObjectConfig(name="door", map_name=map_name, on_use_handler=handler)

    blank = mg.EventConfig(
        name="blank_cue",
        target_query=mg.query(mg.typeTag("cue")),
        timesteps=mg.once(1),
        mutations=[mg.changeTargetVibe("default")],
    )
    return make_config(
        agent=mg.AgentConfig(rewards={"heart": mg.inventoryReward("heart")}),
        num_agents=settings.rooms,
        max_steps=episode_length(settings.corridor),
        truncates=False,
        window=settings.window,
        num_tokens=num_tokens,
        objects={
            "wall": mg.WallConfig(),
            "door_good": door("door_good", {"heart": 1}),
            "door_bad": door("door_bad", {}),
            "cue_up": mg.GridObjectConfig(name="cue", map_name="cue_up", vibe=1),
            "cue_down": mg.GridObjectConfig(name="cue", map_name="cue_down", vibe=2),
        },
        events={"blank_cue": blank},
        shows_time=False,
    )
