"""The commands. Slow modules are imported inside the functions, so that `holdfast --help` is fast."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

import holdfast
from holdfast.cli.base import PyAgent, RunsDir, Words, app
from holdfast.cli.failures import FAILED, Output, error_for, reporting_failures
from holdfast.cli.supervise import exit_despite_threads, supervised
from holdfast.errors import HoldfastError, SettingsError, printable
from holdfast.outputs import check_output, write_output
from holdfast.streams import SafeStream, open_closed_streams, safe_output

UsageError: Any = typer.BadParameter.__base__  # typer does not export it

if TYPE_CHECKING:
    from holdfast.config import Key, Settings


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command. With `argv`, the caller decides when the process ends."""
    open_closed_streams()
    if argv is None and sys.argv[1:2] == ["audit"] and hasattr(os, "fork"):
        named = {"--json": Output.JSON, "--github": Output.GITHUB}
        output = next((named[word] for word in sys.argv if word in named), Output.TEXT)
        with safe_output():
            supervised(lambda: _run(None), output)
    with nullcontext() if argv is not None else exit_despite_threads():
        _run(argv)


def _run(argv: Sequence[str] | None) -> None:
    with safe_output():
        try:
            sys.exit(app(args=None if argv is None else list(argv), prog_name="holdfast", standalone_mode=False))
        except UsageError as error:
            message = error.format_message()
            if message.startswith("Usage:"):  # the help, because no command was given
                error.show()
            else:
                typer.echo(f"{printable(message, 160)} See `holdfast --help`.", err=True)
            sys.exit(error.exit_code)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {holdfast.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


# Arguments such as --trainer.lr=1 are passed on to load_settings, because its error explains how to write them.
@app.command(context_settings={"ignore_unknown_options": True})
def train(
    words: Annotated[
        Words, typer.Argument(metavar="KEY=VALUE", help="Settings; list them with `holdfast settings`.")
    ] = None,
) -> None:
    """Train an agent. Without settings, run the quick start.

    \b
    holdfast train
    holdfast train env=collect run=first trainer.total_timesteps=1e6
    holdfast train env=gym:CartPole-v1 env.hide=[1,3] policy.core=gru seed=3
    holdfast train settings=pendulum_no_velocity trainer.num_workers=2
    holdfast train env=./mine.py:MyEnv env.kwargs.delay=12
    holdfast train settings=./mine.yaml wandb=offline
    holdfast train run=first

    \b
    env=NAME          memory, collect, arena, gym:NAME, gymvec:NAME, pettingzoo:MODULE, or ./mine.py:MyEnv
    py_agent=NAME     fast, latent_attn_tiny, latent_attn_small, latent_attn_med, example for grid worlds,
                      box for vectors and images, or ./mine.py:MyPolicy; the default depends on the world
    agent=NAME        the same agents as graphs of components, or ./mine.yaml
    settings=NAME     a ready-made settings file (see `holdfast settings --list`) or a custom one, ./mine.yaml
    run=NAME          the run's folder, runs/NAME; if it exists, the run is resumed with the settings it was started
                      with (resume=never refuses to resume, resume=must refuses to start a new run)
    """
    # A broken stdout must not fail a run.
    with reporting_failures(), redirect_stdout(cast(TextIO, SafeStream(sys.stdout))):
        from holdfast.config import load_settings

        settings = load_settings(words or [])
        from holdfast.config.ranks import own_rank, plan_ranks, started_ranks

        planned = plan_ranks(settings, started_ranks())
        if started_ranks() == 1 and int(planned.trainer.ranks) > 1:
            from holdfast.cli.launch import launch

            raise typer.Exit(launch(words or [], planned))
        from holdfast.trainer import train as run_training

        result = run_training(settings)
        if own_rank() == 0:
            typer.echo(_closing_lines(result.run, result.summary, settings))


def _closing_lines(run: Path, summary: dict[str, Any], settings: Settings) -> str:
    """Return the text printed after training: the result, the run folder and the next command."""
    mean = summary["episode_return_mean"]
    result = "no episode has ended" if mean is None else f"mean return of the last 100 episodes {mean:.3f}"
    solved = "" if summary["solved_at"] is None else ", which is trainer.stop_at_return or more"
    shown = run.relative_to(Path.cwd()) if run.is_relative_to(Path.cwd()) else run
    here = Path(sys.executable).with_name("holdfast")  # after `make train`, the command is not on PATH
    command = os.path.relpath(here) if shutil.which("holdfast") is None and here.exists() else "holdfast"
    own, env = settings.policy.agent_word.removeprefix("py_agent="), settings.env
    trust = f" {shlex.quote(f'env={env.name}')}" if env.module_in(env.name) else ""
    trust += f" --py-agent {shlex.quote(own)}" if ".py:" in own else ""
    return (
        f"\n{summary['agent_steps']:,} steps in {summary['wall_s']:.0f} s ({summary['sps']:,.0f} steps/s): {result}{solved}.\n"
        f"Replay parity: largest |log-ratio| {summary['parity_max_abs_logratio']:.2g} (healthy: below 1e-5).\n"
        f"The run is in {shown}: metrics.jsonl, summary.json, config.yaml, checkpoints/.\n"
        f"Next, see what it does, what it remembers, and what that is worth: {command} view {shown}{trust}"
    )


@app.command()
def settings(
    words: Annotated[Words, typer.Argument(metavar="[PREFIX] [env=NAME] [py_agent=NAME] [agent=NAME]")] = None,
    ready: Annotated[bool, typer.Option("--list", help="List the ready-made settings files.")] = False,
) -> None:
    """List every setting: its default, allowed values and meaning.

    \b
    holdfast settings trainer.schedule
    holdfast settings env env=gym:CartPole-v1
    holdfast settings --list
    """
    with reporting_failures():
        from holdfast.cli.tables import render, text_table
        from holdfast.config import describe_ready, list_keys

        if ready:
            table = text_table("settings=", "what it trains")
            for name, first_line in describe_ready().items():
                table.add_row(name, first_line)
        else:
            table = text_table("key", "default", "allowed", "meaning", "only with")
            for key in list_keys(words or []):
                table.add_row(key.name, _default(key), key.allowed, key.description, key.owner)
        typer.echo(render(table))


def _default(key: Key) -> str:
    """Return a setting's default as it is written on the command line."""
    if isinstance(key.default, bool):
        return "on" if key.default else "off"
    if key.default == "":
        return "(empty)"
    return "" if key.default is None and not key.optional else str(key.default)


@app.command()
def audit(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET", help="py_agent=NAME, agent=NAME, FILE.py:NAME, or the name or folder of a run."
        ),
    ] = None,
    words: Annotated[
        Words, typer.Argument(metavar="[KEY=VALUE]...", help="Settings; for a run, only env=NAME and env.KEY=VALUE.")
    ] = None,
    only: Annotated[Words, typer.Option(metavar="CHECK", help="Run only this check; may be repeated.")] = None,
    declare: Annotated[
        Words,
        typer.Option(
            metavar="DEVIATION", help="Accept this intended deviation; may be repeated. docs/audit.md lists the names."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only the quick checks, which also run before training.")
    ] = False,
    explain_all: Annotated[bool, typer.Option("--all", help="Explain all failures, not only the first three.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 2, help="Seed for weights and observations.")] = 0,
    time_limit: Annotated[float, typer.Option(min=1, max=10**6, help="Give up after this many seconds.")] = 300,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    github: Annotated[
        bool, typer.Option("--github", help="Also print failures as annotations for GitHub Actions.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Also write an HTML page, with maps of what depends on what.")
    ] = None,
    checks: Annotated[bool, typer.Option("--checks", help="List the checks and what each one verifies.")] = False,
    py_agent: PyAgent = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Check a recurrent policy for state bugs, without training it.

    \b
    holdfast audit py_agent=fast
    holdfast audit agent=./mine.yaml env=arena --html audit.html
    holdfast audit ./mine.py:MyPolicy env=gym:CartPole-v1
    holdfast audit ./theirs.py:subject --declare learning_without_resets
    holdfast audit runs/first --json

    Exit code 0: no check failed. 1: a check failed. 2: the target, or a check named by --only, cannot be run.
    """
    with reporting_failures():
        if checks:
            from holdfast.audit import CHECKS
            from holdfast.cli.tables import row_table

            typer.echo(row_table([{"check": check.name, "promise": check.promise} for check in CHECKS]))
            return
        if target is None:
            raise SettingsError("name a target to audit, such as py_agent=fast, ./mine.py:MyPolicy or runs/first.")
        if quick and only:
            raise SettingsError("--quick and --only: use one of them; both select checks.")
        if explain_all and as_json:
            raise SettingsError("--all and --json: use one of them; JSON already explains every failure.")
        if github and as_json:
            raise SettingsError("--github and --json: use one of them; annotations would not be valid JSON.")
        check_output("--html", html)
        output = Output.JSON if as_json else Output.GITHUB if github else Output.TEXT
        from holdfast.cli.audit_command import audit_target

        try:
            report = audit_target(
                target,
                words or [],
                only=only,
                declared=declare or [],
                quick=quick,
                seed=seed,
                time_limit=time_limit,
                runs_dir=runs_dir,
                py_agent=py_agent,
                output=output,
                flag_maps=html is not None,
            )
        except HoldfastError as error:
            typer.echo(error_for(output, str(error)), nl=False)
            raise
        if html is not None:
            from holdfast.audit.page import report_page

            write_output("--html", html, report_page(report).encode())
        if as_json:
            typer.echo(json.dumps(report.to_json(), indent=2))
        else:
            from holdfast.cli.audit_text import report_text

            typer.echo(report_text(report, explain_all))
            if html is not None:
                typer.echo(f"The page is in {html}.")
        if github:
            from holdfast.cli.audit_text import report_annotations

            typer.echo(report_annotations(report, explain_all), nl=False)
        if not report.sound:
            raise typer.Exit(FAILED)
        if only and report.counts()["not run"]:
            raise SettingsError("a check named with --only could not run; the table gives the reason.")


@app.command(context_settings={"ignore_unknown_options": True})
def bench(
    args: Annotated[
        Words, typer.Argument(metavar="PART", help="Benchmark to run; default: all. Options: --json PATH, --quick.")
    ] = None,
) -> None:
    """Run the speed benchmarks on this machine; results are ratios of speeds. Same as `make bench` in the source tree."""
    with reporting_failures():
        script = Path(holdfast.__file__).parents[2] / "proofs" / "bench" / "run.py"
        if not script.is_file():
            raise SettingsError("benchmarks are part of the source tree: clone the repository and run `make bench`.")
        raise typer.Exit(subprocess.call([sys.executable, str(script), *(args or ())]))


from holdfast.cli import across_runs, evaluate_command, export_command, sweep_command, view_command  # noqa: E402, F401  (they register their commands)
