"""arena: mines give ore, generators turn ore into a battery, altars turn a battery into a heart, worth 1.

An agent carries at most one ore and one battery. With env.shaped, holding them is worth 0.1 and 0.3, taken back when
they are spent: every step towards a heart pays, and the whole way is worth exactly one heart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, world_name
from holdfast.envs.mettagrid.game import MettaGridEnv, Window
from holdfast.envs.mettagrid.maps import AGENT, Map, scatter, walled
from holdfast.errors import SettingsError

if TYPE_CHECKING:
    from holdfast.envs.mettagrid.api import AnyFilter, GridObjectConfig


@WORLDS.register("arena")
class ArenaEnv(MettaGridEnv):
    name: str = world_name("arena", "mine -> generator -> altar, with shaped rewards")
    num_envs: Count = Field(default=4, le=65536, description="environments; slots = num_envs x agents")
    agents: Count = Field(default=24, le=200, description="agents per environment")
    size: int = Field(default=25, ge=8, le=200, description="side of the map, including walls")
    mines: Count = Field(default=10, le=1000, description="mines, which give ore")
    generators: Count = Field(default=5, le=1000, description="generators, which turn ore into a battery")
    altars: Count = Field(default=5, le=1000, description="altars, which turn a battery into a heart")
    max_steps: Count = Field(default=1000, le=1_000_000, description="steps per episode")
    window: Window = Field(default=11, description="side of the square an agent sees")
    num_tokens: Count = Field(default=200, le=1000, description="maximum number of tokens in one observation")
    shaped: bool = Field(default=True, description="small rewards for holding an ore or a battery")
    desync: bool = Field(default=True, description="end each environment's first episode at a random step")

    def game(self) -> ArenaGame:
        return ArenaGame(self)


class ArenaGame:
    def __init__(self, settings: ArenaEnv):
        self._room = walled(settings.size)
        counts = {
            AGENT: settings.agents,
            "mine": settings.mines,
            "generator": settings.generators,
            "altar": settings.altars,
        }
        self._things = [name for name, count in counts.items() for _ in range(count)]
        room = (settings.size - 2) ** 2
        if len(self._things) > room:
            raise SettingsError(
                f"env.agents={settings.agents}, env.mines={settings.mines}, "
                f"env.generators={settings.generators} and env.altars={settings.altars} do not fit into the "
                f"{room} cells inside env.size={settings.size}. Use a larger map or fewer of them."
            )
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

    def map(self, seed: int) -> Map:
        return scatter(self._room, self._things, seed)


def _station(name: str, *, gives: str, takes: str | None = None) -> GridObjectConfig:
    """An object that trades `takes` for `gives`. An agent that cannot carry more spends nothing."""
    from holdfast.envs.mettagrid import api as mg

    filters: list[AnyFilter] = [] if gives == "heart" else [mg.isNot(mg.actorHas({gives: 1}))]
    changes = {gives: 1}
    if takes:
        filters.append(mg.actorHas({takes: 1}))
        changes[takes] = -1
    handler = mg.Handler(filters=filters, mutations=[mg.updateActor(changes)])
    return mg.GridObjectConfig(name=name, on_use_handler=handler)
