"""The application that every command registers with, and what several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
