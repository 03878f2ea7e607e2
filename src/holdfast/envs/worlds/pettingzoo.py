"""pettingzoo:MODULE: a PettingZoo environment, parallel or turn-based."""

from __future__ import annotations

from typing import Any

from holdfast.config.registry import WORLDS
from holdfast.config.sections import Count, Entries, EnvSection, setting, world_name


@WORLDS.register("pettingzoo:")
class PettingZooEnv(EnvSection):
    name: str = world_name(
        "pettingzoo:MODULE", "module of a PettingZoo environment", "pettingzoo:mpe2.simple_spread_v3"
    )
    num_envs: Count = setting(8, "number of environments; slots = num_envs x agents", le=65536)
    hide: Entries = setting(
        [], "observation entries to hide: indices of a vector, or names of entries (NAME, or NAME.INDEX in a vector)"
    )
    action_mask: bool | None = setting(
        None,
        "mask illegal actions: `true` reads infos[agent]['action_mask']; None: only if observations are a Dict with an "
        "entry action_mask, and in turn-based games; `false`: never",
    )
    kwargs: dict[str, Any] = setting({}, "keyword arguments for parallel_env() or env()")

    @classmethod
    def module_in(cls, name: str) -> str:
        return name.partition(":")[2]

    def build(self, env_ids: range, buffers: Any = None) -> Any:
        from holdfast.envs.pettingzoo_world import PettingZooWorld

        return PettingZooWorld(self, env_ids, buffers)
