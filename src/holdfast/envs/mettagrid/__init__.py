"""MettaGrid worlds as slots: memory, collect and arena. Importing this package imports mettagrid."""

from holdfast.envs.mettagrid.quiet import import_mettagrid

import_mettagrid()

from holdfast.envs.mettagrid.adapter import MettaGridWorld  # noqa: E402  (mettagrid must be imported quietly first)
from holdfast.envs.mettagrid.games import describe  # noqa: E402

__all__ = ["MettaGridWorld", "describe"]
