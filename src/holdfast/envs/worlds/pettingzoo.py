"""pettingzoo:MODULE, a PettingZoo parallel environment."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, EnvSection, world_name
from holdfast.spec import WorldSpec


@WORLDS.register("pettingzoo:")
class PettingZooEnv(EnvSection):
    name: str = world_name(
        "pettingzoo:MODULE", "module of a PettingZoo parallel environment", "pettingzoo:mpe2.simple_spread_v3"
    )
    num_envs: Count = Field(default=8, le=65536, description="environments; slots = num_envs x agents")
    action_mask: bool = Field(
        default=False, description="read the mask of legal actions from infos[agent]['action_mask']"
    )
    kwargs: dict[str, Any] = Field(default={}, description="keyword arguments for parallel_env")

    def describe(self) -> WorldSpec:
        from holdfast.envs.pettingzoo_world import describe_pettingzoo

        return describe_pettingzoo(self)

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.pettingzoo_world import PettingZooWorld

        return PettingZooWorld(self, env_ids, buffers)
