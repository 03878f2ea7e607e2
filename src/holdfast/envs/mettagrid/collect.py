"""collect: agents share a room with mines; moving into one takes its heart, worth 1, and the mine is gone."""

from __future__ import annotations

from mettagrid.config.handler_config import Handler, targetHas, withdraw
from mettagrid.config.mettagrid_config import AgentConfig, GridObjectConfig, InventoryConfig, WallConfig
from mettagrid.config.reward_config import inventoryReward

from holdfast.config.settings import CollectEnv
from holdfast.envs.mettagrid.layout import make_config
from holdfast.envs.mettagrid.maps import AGENT, OWN_TOKENS, Map, most_tokens, scatter, walled
from holdfast.errors import SettingsError


class CollectGame:
    def __init__(self, settings: CollectEnv):
        self._room = walled(settings.size)
        self._things = [AGENT] * settings.agents + ["mine"] * settings.mines
        room = (settings.size - 2) ** 2
        if len(self._things) > room:
            raise SettingsError(
                f"env.agents={settings.agents} and env.mines={settings.mines} do not fit into the {room} "
                f"cells inside env.size={settings.size}; make the map larger or place less."
            )
        heart_tokens = 1 + (settings.mines > 255)  # a second token carries the part above one byte
        mine_tokens = 2  # tag, heart
        mine = GridObjectConfig(
            name="mine",
            inventory=InventoryConfig(initial={"heart": 1}),
            on_use_handler=Handler(
                filters=[targetHas({"heart": 1})], mutations=[withdraw({"heart": 1}, remove_when_empty=True)]
            ),
        )
        self.config = make_config(
            agent=AgentConfig(rewards={"heart": inventoryReward("heart")}),
            num_agents=settings.agents,
            max_steps=settings.max_steps,
            truncates=True,
            window=settings.window,
            num_tokens=most_tokens(
                self._room,
                [OWN_TOKENS + heart_tokens] * settings.agents + [mine_tokens] * settings.mines,
                settings.window,
            ),
            objects={"wall": WallConfig(), "mine": mine},
        )

    def map(self, seed: int) -> Map:
        return scatter(self._room, self._things, seed)
