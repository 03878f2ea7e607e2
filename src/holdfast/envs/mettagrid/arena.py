"""arena: mines give ore, generators turn ore into a battery, altars turn a battery into a heart, worth 1.

An agent carries one ore and one battery. Shaped, holding them is worth 0.1 and 0.3, taken back when they are
spent: every step of the way pays, and the whole way is worth exactly one heart.
"""

from __future__ import annotations

from mettagrid.config.filter import AnyFilter
from mettagrid.config.handler_config import Handler, actorHas, isNot, updateActor
from mettagrid.config.mettagrid_config import (
    AgentConfig,
    GridObjectConfig,
    InventoryConfig,
    ResourceLimitsConfig,
    WallConfig,
)
from mettagrid.config.reward_config import inventoryReward

from holdfast.config.settings import ArenaEnv
from holdfast.envs.mettagrid.layout import make_config
from holdfast.envs.mettagrid.maps import AGENT, Map, scatter, walled
from holdfast.errors import SettingsError


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
                f"{room} cells inside env.size={settings.size}; make the map larger or place less."
            )
        rewards = {"heart": inventoryReward("heart")}
        if settings.shaped:
            rewards["ore"] = inventoryReward("ore", weight=0.1)
            rewards["battery"] = inventoryReward("battery", weight=0.3)
        one_each = {name: ResourceLimitsConfig(base=1, resources=[name]) for name in ("ore", "battery")}
        self.config = make_config(
            agent=AgentConfig(rewards=rewards, inventory=InventoryConfig(limits=one_each)),
            num_agents=settings.agents,
            max_steps=settings.max_steps,
            truncates=True,
            window=settings.window,
            num_tokens=settings.num_tokens,
            objects={
                "wall": WallConfig(),
                "mine": _station("mine", gives="ore"),
                "generator": _station("generator", takes="ore", gives="battery"),
                "altar": _station("altar", takes="battery", gives="heart"),
            },
        )

    def map(self, seed: int) -> Map:
        return scatter(self._room, self._things, seed)


def _station(name: str, *, gives: str, takes: str | None = None) -> GridObjectConfig:
    """An object that trades `takes` for `gives`; nothing is spent by an agent that cannot carry more."""
    filters: list[AnyFilter] = [] if gives == "heart" else [isNot(actorHas({gives: 1}))]
    changes = {gives: 1}
    if takes:
        filters.append(actorHas({takes: 1}))
        changes[takes] = -1
    handler = Handler(filters=filters, mutations=[updateActor(changes)])
    return GridObjectConfig(name=name, on_use_handler=handler)
