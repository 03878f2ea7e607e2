"""gym:NAME, any Gymnasium environment."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, EnvSection, world_name
from holdfast.spec import WorldSpec


@WORLDS.register("gym:")
class GymEnv(EnvSection):
    name: str = world_name("gym:NAME", "Gymnasium environment", "gym:CartPole-v1")
    num_envs: Count = Field(default=16, le=65536, description="environments, one slot each")
    hide: list[Annotated[int, Field(ge=0)]] = Field(default=[], description="entries of a vector observation to hide")
    action_mask: bool = Field(default=False, description="read the mask of legal actions from info['action_mask']")
    kwargs: dict[str, Any] = Field(default={}, description="keyword arguments for gymnasium.make")

    def describe(self) -> WorldSpec:
        from holdfast.envs.gymnasium_world import describe_gym

        return describe_gym(self)

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.gymnasium_world import GymWorld

        return GymWorld(self, env_ids, buffers)
