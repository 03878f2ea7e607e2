"""pettingzoo:MODULE: a PettingZoo environment, parallel or turn-based."""

from __future__ import annotations

from typing import Any

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, EnvSection, setting, world_name
from holdfast.envs.worlds.gym import Entries


@WORLDS.register("pettingzoo:")
class PettingZooEnv(EnvSection):
    name: str = world_name(
        "pettingzoo:MODULE", "module of a PettingZoo environment", "pettingzoo:mpe2.simple_spread_v3"
    )
    num_envs: Count = setting(8, "number of environments; slots = num_envs x agents", le=65536)
    hide: Entries = setting([], "indices of the observation entries to hide (vector observations only)")
    action_mask: bool = setting(False, "read the mask of legal actions from infos[agent]['action_mask']")
    kwargs: dict[str, Any] = setting({}, "keyword arguments for parallel_env() or env()")

    @classmethod
    def module_in(cls, name: str) -> str:
        return name.partition(":")[2]

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.pettingzoo_world import PettingZooWorld

        return PettingZooWorld(self, env_ids, buffers)
