"""memory: sealed T-mazes, one agent each. A cue at t=0 says which of two doors, that look the same, pays.

    wall wall  wall  door
    cue  agent ...   ...   wall      corridor: steps from the agent to the cell between the doors
    wall wall  wall  door

The cue is blanked before the second observation, so the choice needs memory: 1.0 with it, 0.5 without. Neither the time nor
the last action is shown: an agent without memory would wait a step where the cue is up, and read the cue off the clock.
"""

from __future__ import annotations

from random import Random

import numpy as np
from mettagrid.config.event_config import EventConfig, once
from mettagrid.config.handler_config import Handler, actorHas, isNot, updateActor
from mettagrid.config.mettagrid_config import AgentConfig, GameConfig, GridObjectConfig, WallConfig
from mettagrid.config.mutation import changeTargetVibe
from mettagrid.config.query import query
from mettagrid.config.reward_config import inventoryReward
from mettagrid.config.tag import typeTag

from holdfast.config.settings import MemoryEnv
from holdfast.envs.mettagrid.layout import make_config
from holdfast.envs.mettagrid.maps import AGENT, OWN_TOKENS, Map, most_in_view

HELD_TOKENS = 2  # heart, chosen


def episode_length(corridor: int) -> int:
    """Steps per episode: a random walk finds the right door in about 5% of episodes up to corridor 8.

    Its time grows with the square of the distance; from there on six times the distance is kept, so that
    the steps after the choice do not fill the batch.
    """
    return min(3 * corridor**2 // 4, 6 * corridor) + 4


def maze(corridor: int, *, up: bool) -> Map:
    """One maze: three rows of corridor + 3 cells."""
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
        # Enough rows between mazes that no window reaches the next one: an agent sees only its own maze.
        gap = max(0, settings.window // 2 - 1)
        self._mazes = [[*rows, *[["empty"] * len(rows[0])] * gap] for rows in mazes]
        self.config = _config(settings, _num_tokens(mazes[0], settings.window))

    def map(self, seed: int) -> Map:
        """Mazes under each other, each with a cue of its own. Rows are shared: MettaGrid only reads them."""
        ups = Random(seed).getrandbits(self._rooms)
        return [row for room in range(self._rooms) for row in self._mazes[ups >> room & 1]]


def _num_tokens(rows: Map, window: int) -> int:
    """Exactly the most an observation can hold. The cue's vibe needs no room: at t=0 nothing is held yet."""
    cells = np.array(rows)
    standing = np.zeros(cells.shape, bool)
    standing[1, 1:-1] = True
    seen = most_in_view((~standing & (cells != "empty")).astype(np.int64), standing, window)
    return OWN_TOKENS + HELD_TOKENS + seen


def _config(settings: MemoryEnv, num_tokens: int) -> GameConfig:
    not_yet = isNot(actorHas({"chosen": 1}))

    def door(map_name: str, gives: dict[str, int]) -> GridObjectConfig:
        handler = Handler(filters=[not_yet], mutations=[updateActor({"chosen": 1, **gives})])
        return GridObjectConfig(name="door", map_name=map_name, on_use_handler=handler)

    blank = EventConfig(
        name="blank_cue",
        target_query=query(typeTag("cue")),
        timesteps=once(1),
        mutations=[changeTargetVibe("default")],
    )
    return make_config(
        agent=AgentConfig(rewards={"heart": inventoryReward("heart")}),
        num_agents=settings.rooms,
        max_steps=episode_length(settings.corridor),
        truncates=False,
        window=settings.window,
        num_tokens=num_tokens,
        objects={
            "wall": WallConfig(),
            "door_good": door("door_good", {"heart": 1}),
            "door_bad": door("door_bad", {}),
            "cue_up": GridObjectConfig(name="cue", map_name="cue_up", vibe=1),
            "cue_down": GridObjectConfig(name="cue", map_name="cue_down", vibe=2),
        },
        events={"blank_cue": blank},
        shows_time=False,
    )
