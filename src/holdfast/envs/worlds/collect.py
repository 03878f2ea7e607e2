"""collect: agents share a room with mines. Moving into a mine takes its heart, worth 1, and removes the mine."""

from __future__ import annotations

from pydantic import Field

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, world_name
from holdfast.envs.mettagrid.game import MettaGridEnv, Window
from holdfast.envs.mettagrid.maps import AGENT, OWN_TOKENS, Map, most_tokens, scatter, walled
from holdfast.errors import SettingsError


@WORLDS.register("collect")
class CollectEnv(MettaGridEnv):
    name: str = world_name("collect", "agents collect hearts from mines")
    num_envs: Count = Field(default=16, le=65536, description="environments; slots = num_envs x agents")
    agents: Count = Field(default=2, le=64, description="agents per environment")
    size: int = Field(default=9, ge=5, le=100, description="side of the map, including walls")
    mines: Count = Field(default=8, le=1000, description="mines, one heart each")
    max_steps: Count = Field(default=32, le=100_000, description="steps per episode")
    window: Window = Field(default=7, description="side of the square an agent sees")
    desync: bool = Field(default=False, description="end each environment's first episode at a random step")

    def game(self) -> CollectGame:
        return CollectGame(self)


class CollectGame:
    def __init__(self, settings: CollectEnv):
        self._room = walled(settings.size)
        self._things = [AGENT] * settings.agents + ["mine"] * settings.mines
        room = (settings.size - 2) ** 2
        if len(self._things) > room:
            raise SettingsError(
                f"env.agents={settings.agents} and env.mines={settings.mines} do not fit into the {room} "
                f"cells inside env.size={settings.size}. Use a larger map or fewer of them."
            )
        from holdfast.envs.mettagrid import api as mg
        from holdfast.envs.mettagrid.layout import make_config

        heart_tokens = 1 + (settings.mines > 255)  # a count above 255 needs a second token
        mine_tokens = 2  # tag, heart
        mine = mg.GridObjectConfig(
            name="mine",
            inventory=mg.InventoryConfig(initial={"heart": 1}),
            on_use_handler=mg.Handler(
                filters=[mg.targetHas({"heart": 1})], mutations=[mg.withdraw({"heart": 1}, remove_when_empty=True)]
            ),
        )
        self.config = make_config(
            agent=mg.AgentConfig(rewards={"heart": mg.inventoryReward("heart")}),
            num_agents=settings.agents,
            max_steps=settings.max_steps,
            truncates=True,
            window=settings.window,
            num_tokens=most_tokens(
                self._room,
                [OWN_TOKENS + heart_tokens] * settings.agents + [mine_tokens] * settings.mines,
                settings.window,
            ),
            objects={"wall": mg.WallConfig(), "mine": mine},
        )

    def map(self, seed: int) -> Map:
        return scatter(self._room, self._things, seed)
