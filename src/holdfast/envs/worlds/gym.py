"""gym:NAME: any Gymnasium environment. gymvec:NAME: a Gymnasium environment with a vector implementation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, EnvSection, setting, world_name

Entries = list[Annotated[int, Field(ge=0)]]


@WORLDS.register("gym:")
class GymEnv(EnvSection):
    name: str = world_name("gym:NAME", "Gymnasium environment", "gym:CartPole-v1")
    num_envs: Count = setting(16, "number of environments, one slot each", le=65536)
    hide: Entries = setting([], "indices of the observation entries to hide (vector observations only)")
    action_mask: bool = setting(False, "read the mask of legal actions from info['action_mask']")
    kwargs: dict[str, Any] = setting({}, "keyword arguments for gymnasium.make")

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.gymnasium_world import GymWorld

        return GymWorld(self, env_ids, buffers)


@WORLDS.register("gymvec:")
class GymVectorEnv(EnvSection):
    name: str = world_name("gymvec:NAME", "Gymnasium environment with a vector implementation", "gymvec:CartPole-v1")
    hide: Entries = setting([], "indices of the observation entries to hide (vector observations only)")
    kwargs: dict[str, Any] = setting({}, "keyword arguments for gymnasium.make_vec")

    @property
    def single_generator(self) -> bool:
        return True

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.vector_world import make_vector_world

        return make_vector_world(self, env_ids)
