"""The first import of mettagrid, kept from changing the program around it."""

from __future__ import annotations

import logging

from holdfast.errors import SettingsError


def import_mettagrid() -> None:
    """Import mettagrid and put the root logger back: the import gives it a handler and the level INFO."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        import mettagrid.mettagrid_c  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            "The worlds memory, collect and arena need mettagrid 0.26.22 (Python 3.11 or 3.12), "
            f"which does not import here: {error}"
        ) from None
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
