"""gym:NAME: any Gymnasium environment. gymvec:NAME: a Gymnasium environment with a vector implementation."""

from __future__ import annotations

from typing import Any

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, Entries, EnvSection, setting, world_name


@WORLDS.register("gym:")
class GymEnv(EnvSection):
    name: str = world_name("gym:NAME", "Gymnasium environment", "gym:CartPole-v1")
    num_envs: Count = setting(8, "number of environments, one slot each", le=65536)
    hide: Entries = setting(
        [], "observation entries to hide: indices of a vector, or names of entries (NAME, or NAME.INDEX in a vector)"
    )
    action_mask: bool | None = setting(
        None,
        "mask illegal actions: `true` reads info['action_mask']; None: only if observations are a Dict with an entry "
        "action_mask; `false`: never",
    )
    kwargs: dict[str, Any] = setting({}, "keyword arguments for gymnasium.make")

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.gymnasium_world import GymWorld

        return GymWorld(self, env_ids, buffers)


@WORLDS.register("gymvec:")
class GymVectorEnv(EnvSection):
    name: str = world_name("gymvec:NAME", "Gymnasium environment with a vector implementation", "gymvec:CartPole-v1")
    hide: Entries = setting(
        [], "observation entries to hide: indices of a vector, or names of entries (NAME, or NAME.INDEX in a vector)"
    )
    kwargs: dict[str, Any] = setting({}, "keyword arguments for gymnasium.make_vec")

    @property
    def single_generator(self) -> bool:
        return True

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.vector_world import make_vector_world

        return make_vector_world(self, env_ids)
