"""The application that every command registers with, and what several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.errors import SettingsError, printable, reason_of

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train recurrent PPO agents for tasks that need memory.",
)
Words = list[str] | None
PyAgent = Annotated[
    str | None, typer.Option(metavar="FILE.py:CLASS", help="Code of the run's custom policy. Name only trusted code.")
]
RunsDir = Annotated[Path, typer.Option(help="Folder that contains the run folders.")]


def check_output(option: str, path: Path | None) -> None:
    """Raise SettingsError unless `path` is a file path in an existing folder; called before the work starts."""
    try:
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise SettingsError(f"{option} {printable(str(path), 150)}: needs a file path in an existing folder.")
    except OSError as error:
        raise SettingsError(f"{option} {printable(str(path), 150)}: {reason_of(error)}.") from error
