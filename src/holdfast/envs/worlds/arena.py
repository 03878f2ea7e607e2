"""arena: mines give ore, generators turn ore into a battery, altars turn a battery into a heart, which gives reward 1.

An agent carries at most one ore and one battery. With env.shaped, getting ore gives reward 0.1 and getting a
battery 0.3; spending them takes that reward back. So every step towards a heart is rewarded, and the sum of rewards
for one heart stays 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, setting, world_name
from holdfast.envs.mettagrid.game import AGENT, MettaGridEnv, ScatterGame, Window

if TYPE_CHECKING:
    from holdfast.envs.mettagrid.api import AnyFilter, GridObjectConfig


@WORLDS.register("arena")
class ArenaEnv(MettaGridEnv):
    name: str = world_name("arena", "mine -> generator -> altar, with shaped rewards")
    num_envs: Count = setting(4, "number of environments; slots = num_envs x agents", le=65536)
    agents: Count = setting(24, "number of agents per environment", le=200)
    size: int = setting(25, "side length of the map in cells, including walls", ge=8, le=200)
    mines: Count = setting(10, "number of mines, which give ore", le=1000)
    generators: Count = setting(5, "number of generators, which turn ore into a battery", le=1000)
    altars: Count = setting(5, "number of altars, which turn a battery into a heart", le=1000)
    max_steps: Count = setting(1000, "steps per episode", le=1_000_000)
    window: Window = setting(11, "side length of the observation window in cells")
    num_tokens: Count = setting(200, "maximum number of tokens in one observation", le=1000)
    shaped: bool = setting(True, "small rewards for holding an ore or a battery")
    desync: bool = setting(True, "end each environment's first episode at a random step")

    def game(self) -> ArenaGame:
        return ArenaGame(self)


class ArenaGame(ScatterGame):
    def __init__(self, settings: ArenaEnv):
        things = {"agents": AGENT, "mines": "mine", "generators": "generator", "altars": "altar"}
        super().__init__(settings, things)
        from holdfast.envs.mettagrid import api as mg
        from holdfast.envs.mettagrid.layout import make_config

        rewards = {"heart": mg.inventoryReward("heart")}
        if settings.shaped:
            rewards["ore"] = mg.inventoryReward("ore", weight=0.1)
            rewards["battery"] = mg.inventoryReward("battery", weight=0.3)
        one_each = {name: mg.ResourceLimitsConfig(base=1, resources=[name]) for name in ("ore", "battery")}
        self.config = make_config(
            agent=mg.AgentConfig(rewards=rewards, inventory=mg.InventoryConfig(limits=one_each)),
            num_agents=settings.agents,
            max_steps=settings.max_steps,
            truncates=True,
            window=settings.window,
            num_tokens=settings.num_tokens,
            objects={
                "wall": mg.WallConfig(),
                "mine": _station("mine", gives="ore"),
                "generator": _station("generator", takes="ore", gives="battery"),
                "altar": _station("altar", takes="battery", gives="heart"),
            },
        )


def _station(name: str, *, gives: str, takes: str | None = None) -> GridObjectConfig:
    """Return an object that exchanges `takes` for `gives`. An agent that cannot carry more does not lose `takes`."""
    from holdfast.envs.mettagrid import api as mg

    filters: list[AnyFilter] = [] if gives == "heart" else [mg.isNot(mg.actorHas({gives: 1}))]
    changes = {gives: 1}
    if takes:
        filters.append(mg.actorHas({takes: 1}))
        changes[takes] = -1
    handler = mg.Handler(filters=filters, mutations=[mg.updateActor(changes)])
    return mg.GridObjectConfig(name=name, on_use_handler=handler)
