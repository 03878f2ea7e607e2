"""Import the parts of mettagrid that games use, and undo the changes that mettagrid makes to the root logger."""

# ruff: noqa: F401  (imported for the games)

import logging
from collections.abc import Callable

from holdfast.errors import SettingsError

_root = logging.getLogger()
_handlers, _level = _root.handlers[:], _root.level
try:
    from mettagrid.builder.envs import make_arena, make_navigation
    from mettagrid.config.action_config import ActionsConfig, ChangeVibeActionConfig
    from mettagrid.config.event_config import EventConfig, once
    from mettagrid.config.filter import AnyFilter
    from mettagrid.config.handler_config import Handler, actorHas, isNot, targetHas, updateActor, withdraw
    from mettagrid.config.mettagrid_c_config import convert_to_cpp_game_config, rename_map_agents
    from mettagrid.config.mettagrid_config import (
        AgentConfig,
        AnyGridObjectConfig,
        GameConfig,
        GridObjectConfig,
        InventoryConfig,
        MettaGridConfig,
        ResourceLimitsConfig,
        WallConfig,
    )
    from mettagrid.config.mutation import (
        ChangeVibeMutation,
        EntityTarget,
        QueryInventoryMutation,
        ResourceDeltaMutation,
        ResourceTransferMutation,
        changeTargetVibe,
    )
    from mettagrid.config.obs_config import GlobalObsConfig, ObsConfig
    from mettagrid.config.query import query
    from mettagrid.config.reward_config import inventoryReward
    from mettagrid.config.tag import typeTag
    from mettagrid.config.vibes import Vibe
    from mettagrid.map_builder.ascii import AsciiMapBuilder
    from mettagrid.map_builder.map_builder import HasSeed, MapBuilderConfig
    from mettagrid.mettagrid_c import MettaGrid, dtype_actions
    from mettagrid.policy.policy_env_interface import PolicyEnvInterface
    from mettagrid.policy.submission import SubmissionPolicySpec
except ImportError as error:
    raise SettingsError(
        "The worlds memory, collect, arena and mettagrid: need mettagrid 0.26.22 (Python 3.11 or 3.12), "
        f"which cannot be imported: {error}. Install it, or use env=gym:NAME."
    ) from None
finally:  # mettagrid adds a handler to the root logger and sets its level to INFO
    _root.handlers[:] = _handlers
    _root.setLevel(_level)


def ready_configs() -> dict[str, Callable[..., MettaGridConfig]]:
    """Return the configurations that come with MettaGrid and need no objects of the user's, by name."""

    def arena(num_agents: int = 4, vibes: bool = False, combat: bool = True) -> MettaGridConfig:
        return with_vibes(make_arena(num_agents, combat), vibes)

    def navigation(num_agents: int = 4, vibes: bool = False) -> MettaGridConfig:
        return with_vibes(make_navigation(num_agents), vibes)

    def empty_room(num_agents: int = 4, vibes: bool = False, width: int = 10, height: int = 10) -> MettaGridConfig:
        return with_vibes(MettaGridConfig.EmptyRoom(num_agents, width, height), vibes)

    def with_vibes(config: MettaGridConfig, vibes: bool) -> MettaGridConfig:
        """Switch 152 actions off that change an agent's vibe, unless `vibes`; nothing depends on vibes in these games."""
        config.game.actions.change_vibe.enabled = vibes
        return config

    return {"arena": arena, "empty_room": empty_room, "navigation": navigation}
