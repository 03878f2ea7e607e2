"""Worlds with a common interface (Gymnasium, PettingZoo, MettaGrid), stepped in one process or in several."""

from typing import TYPE_CHECKING

from holdfast.config.registry import lazy_exports

if TYPE_CHECKING:
    from holdfast.envs.make import make_world
    from holdfast.envs.own_world import python_env
    from holdfast.envs.replayable import why_not_replayable
    from holdfast.envs.world import Buffers, ReplayError, ReplayPoint, World, episode_seed
    from holdfast.envs.worlds.arena import ArenaEnv
    from holdfast.envs.worlds.collect import CollectEnv
    from holdfast.envs.worlds.gym import GymEnv, GymVectorEnv
    from holdfast.envs.worlds.memory import MemoryEnv
    from holdfast.envs.worlds.mettagrid import MettaGridConfigEnv
    from holdfast.envs.worlds.own import OwnEnv
    from holdfast.envs.worlds.pettingzoo import PettingZooEnv

__getattr__ = lazy_exports(__name__)
