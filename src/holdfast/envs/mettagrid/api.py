"""Import the parts of mettagrid that games use, and undo the changes that mettagrid makes to the root logger."""

# ruff: noqa: F401  (imported for the games)

import logging

from holdfast.errors import SettingsError

_root = logging.getLogger()
_handlers, _level = _root.handlers[:], _root.level
try:
    from mettagrid.config.action_config import ActionsConfig, ChangeVibeActionConfig
    from mettagrid.config.event_config import EventConfig, once
    from mettagrid.config.filter import AnyFilter
    from mettagrid.config.handler_config import Handler, actorHas, isNot, targetHas, updateActor, withdraw
    from mettagrid.config.mettagrid_c_config import convert_to_cpp_game_config
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
    from mettagrid.config.mutation import changeTargetVibe
    from mettagrid.config.obs_config import GlobalObsConfig, ObsConfig
    from mettagrid.config.query import query
    from mettagrid.config.reward_config import inventoryReward
    from mettagrid.config.tag import typeTag
    from mettagrid.config.vibes import Vibe
    from mettagrid.mettagrid_c import MettaGrid, dtype_actions
    from mettagrid.policy.policy_env_interface import PolicyEnvInterface
except ImportError as error:
    raise SettingsError(
        "The worlds memory, collect and arena need mettagrid 0.26.22 (Python 3.11 or 3.12), "
        f"which cannot be imported: {error}. Install it, or use env=gym:NAME."
    ) from None
finally:  # mettagrid adds a handler to the root logger and sets its level to INFO
    _root.handlers[:] = _handlers
    _root.setLevel(_level)
