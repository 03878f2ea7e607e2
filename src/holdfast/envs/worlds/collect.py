"""collect: agents share a room with mines. Moving into a mine gives reward 1 and removes the mine."""

from __future__ import annotations

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, setting, world_name
from holdfast.envs.mettagrid.game import AGENT, OWN_TOKENS, MettaGridEnv, ScatterGame, Window, most_tokens


@WORLDS.register("collect")
class CollectEnv(MettaGridEnv):
    name: str = world_name("collect", "agents collect hearts from mines")
    num_envs: Count = setting(16, "number of environments; slots = num_envs x agents", le=65536)
    agents: Count = setting(2, "number of agents per environment", le=64)
    size: int = setting(9, "side length of the map in cells, including walls", ge=5, le=100)
    mines: Count = setting(8, "number of mines, with one heart each", le=1000)
    max_steps: Count = setting(32, "steps per episode", le=100_000)
    window: Window = setting(7, "side length of the observation window in cells")
    desync: bool = setting(False, "end each environment's first episode at a random step")

    def game(self) -> CollectGame:
        return CollectGame(self)


class CollectGame(ScatterGame):
    def __init__(self, settings: CollectEnv):
        super().__init__(settings, {"agents": AGENT, "mines": "mine"})
        from holdfast.envs.mettagrid import api as mg
        from holdfast.envs.mettagrid.layout import make_config

        agent_tokens = OWN_TOKENS + 1 + (settings.mines > 255)  # a number of hearts above 255 needs a second token
        tokens = [agent_tokens] * settings.agents + [2] * settings.mines  # a mine: tag, heart
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
            num_tokens=most_tokens(self._room, tokens, settings.window),
            objects={"wall": mg.WallConfig(), "mine": mine},
        )
