"""holdfast export: one branch per kind of export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.base import PyAgent, RunsDir, Words, app
from holdfast.cli.failures import reporting_failures
from holdfast.custom_code import exits_reported
from holdfast.errors import SettingsError


@app.command()
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name or folder of a run.")],
    words: Annotated[
        Words,
        typer.Argument(metavar="[env=NAME env.KEY=VALUE]", help="Changes to the world; default: the run's world."),
    ] = None,
    mettagrid: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a policy that MettaGrid's own runner plays without Holdfast."),
    ] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Checkpoint name, or `best`; default: the newest.")] = None,
    py_agent: PyAgent = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Export a trained agent, and check what was exported.

    \b
    holdfast export first --mettagrid exported/first
    """
    with reporting_failures(), exits_reported():
        from holdfast.config import load_run_world
        from holdfast.runs import find_run
        from holdfast.runs.folder import CONFIG

        if mettagrid is None:
            raise SettingsError("name what to export to, such as --mettagrid DIR.")
        folder = find_run(run, runs_dir)
        env = load_run_world(folder / CONFIG, words or [])
        from holdfast.export.mettagrid import export_mettagrid

        typer.echo(export_mettagrid(folder, mettagrid, env, checkpoint, py_agent).text)
