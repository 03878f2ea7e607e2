"""`holdfast sweep`: run many combinations of settings, and compare them."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.across_runs import AsJson
from holdfast.cli.base import RunsDir, Words, app
from holdfast.cli.failures import FAILED, reporting_failures
from holdfast.errors import MAX_LINE, HoldfastError, SettingsError, name_some, printable, reason_of

if TYPE_CHECKING:
    from holdfast.files import Folder
    from holdfast.sweeps.plan import Plan
    from holdfast.sweeps.store import Proposed

MAX_JOBS = 256
MAX_COMMAND = 4000  # characters; a longer command is cut
logger = logging.getLogger(__name__)


@app.command()
def sweep(
    words: Annotated[
        Words,
        typer.Argument(metavar="KEY=A,B,C KEY=LOW..HIGH KEY=VALUE...", help="Settings; several values are swept."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the sweep's folder; default: made from the words.")] = None,
    jobs: Annotated[
        int, typer.Option(min=1, max=MAX_JOBS, help="Runs at a time; of several, each has one thread.")
    ] = 1,
    trials: Annotated[
        int, typer.Option(min=0, max=10_000, help="Search with this many combinations (Optuna) instead of trying all.")
    ] = 0,
    metric: Annotated[
        str,
        typer.Option(help="What decides: a number in summary.json, or the last value of a metric in metrics.jsonl."),
    ] = "episode_return_mean",
    minimize: Annotated[bool, typer.Option("--minimize", help="The smallest value of the metric is the best.")] = False,
    show: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only print the table of this sweep, and draw its picture.")
    ] = None,
    as_json: AsJson = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Train with every combination of values, or search for good ones. The same command resumes a sweep.

    \b
    holdfast sweep settings=cartpole_no_velocity trainer.lr=1e-3,3e-4 policy.core=lstm,gru seed=0..4
    holdfast sweep env=gym:CartPole-v1 trainer.lr=1e-5..1e-1 --trials 20
    holdfast sweep env=gym:CartPole-v1 env.hide=[1],[3] --jobs 2 --name hidden
    holdfast sweep --show hidden

    \b
    KEY=A,B,C      values; commas inside of brackets and quotes do not separate
    KEY=LOW..HIGH  all whole numbers from LOW to HIGH; with --trials, the range that is searched, also of real numbers
    seed=0..4      runs of the same combination: the table has their mean and standard deviation
    """
    runs_dir = Path(os.path.expanduser(runs_dir))  # as training does
    with reporting_failures():
        from holdfast.sweeps.plan import make_plan
        from holdfast.sweeps.store import find_sweep, open_sweep, read_sweep

        if show is not None:
            if words or name or trials:
                raise SettingsError("--show: prints a sweep that exists; leave out the other words.")
            with find_sweep(show, runs_dir) as folder:
                shown, proposed = read_sweep(folder)
                _print_result(shown, proposed, folder, as_json)
                if not as_json:
                    typer.echo(f"The sweep: {_command(shown, 1, runs_dir)}")
            return
        plan = make_plan(words or [], name, trials, metric, minimize)
        from holdfast.sweeps.sweep import SweepRunner, check_sweep

        if trials:
            from holdfast.sweeps.suggest import check_optuna

            check_optuna()
        plan = check_sweep(plan, runs_dir, jobs)
        with open_sweep(plan, runs_dir) as opened:
            runner = SweepRunner(opened, jobs, lambda line: typer.echo(line, err=as_json))
            for line in _opening_lines(opened.plan, opened.path, jobs):
                runner.report(line)
            try:
                runner.run()
            except KeyboardInterrupt:
                done = f"{runner.finished} of {opened.plan.num_runs} runs are finished"
                command = _command(opened.plan, jobs, runs_dir)
                shown = (
                    f"To resume the sweep:\n{command}" if len(command) <= MAX_LINE else "The same command resumes it."
                )
                logger.warning("Stopped: %s. %s", done, shown)
                raise
            _print_result(opened.plan, opened.proposed, opened.folder, as_json)
            if runner.failed:
                logger.error(
                    "%d of %d runs did not finish: %s. Their output is in %s. The same command tries them again.",
                    len(runner.failed),
                    opened.plan.num_runs,
                    name_some(runner.failed),
                    opened.path / "logs",
                )
                raise typer.Exit(FAILED)


def _opening_lines(plan: Plan, path: Path, jobs: int) -> list[str]:
    parts = [f"{plan.num_combinations} {'trials' if plan.trials else 'combinations'}"]
    parts += [f"{len(plan.seeds)} seeds"] if plan.seeds else []
    size = " x ".join(parts) + (f" = {plan.num_runs} runs" if plan.seeds else "")
    lines = [f"Sweep {plan.name} in {printable(str(path), 200)}: {size}, {jobs} at a time."]
    for axis in plan.axes:
        if axis.is_range:
            scale = "on a log scale" if axis.log else "on a linear scale"
            lines.append(f"{axis.key} from {axis.as_text(axis.low)} to {axis.as_text(axis.high)}, {scale}")
    return lines


def _print_result(plan: Plan, proposed: Proposed, folder: Folder, as_json: bool) -> None:
    """Print the table, the best combination and where the picture is."""
    from holdfast.cli.tables import render, text_table
    from holdfast.sweeps.results import best_words, picture_of, shown_words, table_columns, table_of, to_json
    from holdfast.sweeps.store import PICTURE

    rows = table_of(plan, proposed, folder)
    where: Path | None = folder.path / PICTURE
    try:
        folder.replace(PICTURE, picture_of(plan, rows, folder.path).encode())
    except (OSError, HoldfastError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        logger.warning("%s: the picture could not be written: %s.", where, reason)
        where = None
    if as_json:
        typer.echo(json.dumps(to_json(plan, rows, folder.path, where), indent=2))
        return
    head, cells = table_columns(plan, rows)
    table = text_table(*(printable(text, 60) for text in head))
    for row in cells:
        table.add_row(*(printable(text, 60) for text in row))
    typer.echo(f"\n{render(table)}")
    if words := best_words(plan, rows):
        typer.echo(f"\nBest: holdfast train {printable(shown_words(words), MAX_COMMAND)}")
    if where is not None:
        typer.echo(f"The picture is in {printable(str(where), 300)}.")


def _command(plan: Plan, jobs: int, runs_dir: Path) -> str:
    """Return the command that resumes a sweep."""
    from holdfast.sweeps.results import shown_words

    options = ["--jobs", str(jobs)] if jobs > 1 else []
    options += ["--runs-dir", str(runs_dir)] if runs_dir != Path("runs") else []
    return f"holdfast sweep {printable(shown_words([*plan.command, *options]), MAX_COMMAND)}"
