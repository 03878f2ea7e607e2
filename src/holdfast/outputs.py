"""Files that the user asked for by name, such as --html FILE."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.errors import SettingsError, printable, reason_of


def check_output(option: str, path: Path | None) -> None:
    """Raise SettingsError if the file cannot be written; called before the work starts. Nothing is created."""
    if path is None:
        return
    shown = f"{option} {printable(str(path), 150)}"
    try:
        folder = path.absolute().parent
        if path.is_dir() or not folder.is_dir():
            raise SettingsError(f"{shown}: needs a file path in an existing folder.")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise SettingsError(f"{shown}: no permission to write it.")
    except OSError as error:
        raise SettingsError(f"{shown}: {reason_of(error)}.") from error


def write_output(option: str, path: Path, content: bytes) -> None:
    """Write the file, or raise SettingsError."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise SettingsError(f"{option} {printable(str(path), 150)}: {reason_of(error)}.") from error
