"""`holdfast runs` and `holdfast compare`: look at several runs at once. Nothing in a run folder is executed."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.base import RunsDir, Words, app
from holdfast.cli.failures import reporting_failures
from holdfast.errors import HoldfastError, SettingsError, name_some, printable, reason_of
from holdfast.outputs import check_output

if TYPE_CHECKING:
    from holdfast.runs.comparing import Comparison

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
MAX_COMPARED = 200
MAX_PROBLEMS = 3
logger = logging.getLogger(__name__)


@app.command()
def runs(
    words: Annotated[
        Words, typer.Argument(metavar="[NAME]... [KEY=VALUE]...", help="Only these runs; default: all runs.")
    ] = None,
    as_json: AsJson = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """List runs, newest last: steps, mean return, best mean return and state.

    \b
    holdfast runs
    holdfast runs state=running
    holdfast runs demo 'lr-*' env=gym:CartPole-v1 policy.core=gru

    \b
    running     a process is training it
    finished    it has all its steps, or reached trainer.stop_at_return
    stopped     by a signal, or killed; `holdfast train run=NAME` resumes it
    failed      ended by an error, which is shown; `holdfast train run=NAME` resumes it
    """
    with reporting_failures():
        from holdfast.cli.tables import render, text_table
        from holdfast.runs.listing import find_runs, read_row, select_runs

        found, problems = find_runs(runs_dir)
        rows = []
        for run in select_runs(found, words or [], runs_dir) if words else found:
            row, more = read_row(run)
            rows.append(row)
            problems += more
        _report(problems)
        if as_json:
            shown = [
                {("return" if key == "mean_return" else key): value for key, value in vars(row).items()} for row in rows
            ]
            typer.echo(json.dumps(shown, indent=2))
            return
        if not rows:
            typer.echo(f"There are no {'such ' if words else ''}runs in {printable(str(runs_dir), 200)}.")
            return
        table = text_table("run", "world", "agent", "steps", "return", "best", "state")
        for row in rows:
            steps = "-" if row.steps is None else f"{row.steps:,}"
            texts = (row.run, row.world, row.agent)
            table.add_row(
                *(printable(text, 80) for text in texts), steps, figure(row.mean_return), figure(row.best), row.state
            )
        typer.echo(render(table))
        _report([f"{printable(row.run, 200)} failed: {printable(row.error, 200)}" for row in rows if row.error])


@app.command()
def compare(
    names: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Names or folders of runs, a sweep, or a pattern such as 'lr-*'."),
    ],
    metric: Annotated[str, typer.Option(help="Metric to compare, as it is named in metrics.jsonl.")] = "episode_return",
    svg: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Where to write the picture; default: compare.svg among the runs."),
    ] = None,
    as_json: AsJson = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Compare runs: the settings that differ, returns after equal numbers of steps, and a picture of the curves.

    \b
    holdfast compare first second
    holdfast compare first second --metric eval/return --svg curves.svg
    holdfast compare my-sweep
    """
    with reporting_failures():
        from holdfast.runs.charts import Line, draw_curves
        from holdfast.runs.comparing import compare_runs
        from holdfast.runs.listing import name_runs

        check_output("--svg", svg)
        paths = name_runs(names, runs_dir)
        if len(paths) < 2:
            raise SettingsError("name two runs or more to compare, such as `holdfast compare first second`.")
        if len(paths) > MAX_COMPARED:
            raise SettingsError(f"these are {len(paths):,} runs; name at most {MAX_COMPARED}.")
        compared = compare_runs(paths, metric)
        picture = draw_curves(
            f"{metric}: {name_some(paths)}", metric, [Line(name, curve) for name, curve in compared.curves.items()]
        )
        where = svg or _among(runs_dir, paths)
        try:
            write_picture(where, picture)
        except (OSError, HoldfastError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            logger.warning("%s: the picture could not be written: %s. Choose another place with --svg.", where, reason)
            where = None
        if as_json:
            typer.echo(json.dumps(_comparison_json(compared, where), indent=2))
            return
        typer.echo(_comparison_text(compared))
        if where is not None:
            typer.echo(f"\nThe picture is in {printable(str(where), 300)}.")


def _among(runs_dir: Path, paths: dict[str, Path]) -> Path:
    """Return where the picture goes if the user does not say: among the runs."""
    return (runs_dir if runs_dir.is_dir() else next(iter(paths.values())).parent) / "compare.svg"


def write_picture(path: Path, picture: str) -> None:
    """Write a picture atomically. A link of that name is replaced, not followed."""
    from holdfast.files import Folder

    with Folder.open(path.absolute().parent) as folder:
        folder.replace(path.name, picture.encode())


def _comparison_text(compared: Comparison) -> str:
    from holdfast.cli.tables import render, text_table

    parts = []
    if compared.settings:
        table = text_table("setting", *(printable(run, 60) for run in compared.values))
        for key, of_runs in compared.settings.items():
            table.add_row(printable(key, 60), *(printable(of_runs[run], 60) for run in compared.values))
        parts.append(render(table))
    else:
        parts.append("The settings do not differ.")
    name = printable(compared.metric)
    if compared.steps:
        table = text_table("run", *(f"at {step:,}" for step in compared.steps), "last", "state")
        for run, values in compared.values.items():
            last = compared.curves[run].values[-1:]
            table.add_row(
                printable(run, 60), *map(figure, values), figure(last[0] if last else None), compared.states[run]
            )
        parts.append(f"{name} after equal numbers of agent steps:\n{render(table)}")
    else:
        parts.append(f"{name}: no run has finished an update yet.")
    return "\n\n".join(parts)


def _comparison_json(compared: Comparison, picture: Path | None) -> dict[str, Any]:
    return {
        "metric": compared.metric,
        "settings": compared.settings,
        "steps": compared.steps,
        "runs": {
            run: {
                "values": values,
                "steps": compared.curves[run].last_step,
                "last": next(iter(compared.curves[run].values[-1:]), None),
                "state": compared.states[run],
            }
            for run, values in compared.values.items()
        },
        "picture": None if picture is None else os.fspath(picture),
    }


def figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _report(problems: list[str]) -> None:
    for problem in problems[:MAX_PROBLEMS]:
        logger.warning("%s", problem)
    if len(problems) > MAX_PROBLEMS:
        logger.warning("... and %d more.", len(problems) - MAX_PROBLEMS)
