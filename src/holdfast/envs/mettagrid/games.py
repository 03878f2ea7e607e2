"""From settings to a game, and from a game to what a policy may know about it."""

from __future__ import annotations

from typing import Protocol

from mettagrid.config.mettagrid_config import GameConfig, MettaGridConfig
from mettagrid.policy.policy_env_interface import PolicyEnvInterface

from holdfast.config.settings import ArenaEnv, CollectEnv, MemoryEnv
from holdfast.envs.mettagrid.arena import ArenaGame
from holdfast.envs.mettagrid.collect import CollectGame
from holdfast.envs.mettagrid.layout import features
from holdfast.envs.mettagrid.maps import Map
from holdfast.envs.mettagrid.memory import MemoryGame
from holdfast.spec import DiscreteActions, TokenObs, WorldSpec

MettaGridSettings = MemoryEnv | CollectEnv | ArenaEnv


class Game(Protocol):
    """The rules, the same in every episode, and a map for each one."""

    config: GameConfig

    def map(self, seed: int) -> Map: ...


def make_game(settings: MettaGridSettings) -> Game:
    if isinstance(settings, MemoryEnv):
        return MemoryGame(settings)
    if isinstance(settings, CollectEnv):
        return CollectGame(settings)
    return ArenaGame(settings)


def describe(settings: MettaGridSettings) -> WorldSpec:
    """What the world of these settings shows and accepts. Builds no simulation."""
    return describe_game(settings.name, make_game(settings))


def describe_game(name: str, game: Game) -> WorldSpec:
    interface = PolicyEnvInterface.from_mg_cfg(MettaGridConfig(game=game.config))
    return WorldSpec(
        name=name,
        obs=TokenObs(
            num_tokens=game.config.obs.num_tokens,
            window=interface.egocentric_shape,
            features=features(interface),
        ),
        actions=DiscreteActions(tuple(interface.action_names)),
        agents_per_env=game.config.num_agents,
    )
