"""`holdfast evaluate`: play new episodes with a trained policy, and say what its memory is worth."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.base import PyAgent, RunsDir, app
from holdfast.cli.failures import reporting_failures
from holdfast.custom_code import exits_reported
from holdfast.errors import SettingsError

if TYPE_CHECKING:
    from holdfast.evaluate import Estimate


@app.command()
def evaluate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name or folder of a run.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[env=NAME env.KEY=VALUE]", help="Changes to the world; default: the run's world."),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Play at least this many, the same number in every slot; default: 20, or 100 with --certificate.",
        ),
    ] = None,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="Also without memory, in several ways: what is the memory worth?")
    ] = False,
    sample: Annotated[
        bool, typer.Option("--sample", help="Only with sampled actions; default: once with each.")
    ] = False,
    greedy: Annotated[bool, typer.Option("--greedy", help="Only with the most probable action.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed for the episodes.")] = 1_000_000,
    checkpoint: Annotated[str | None, typer.Option(help="Checkpoint name, or `best`; default: the newest.")] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Fail if an episode has more steps than this.")] = 100_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    py_agent: PyAgent = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Evaluate a trained policy on new episodes: with the most probable actions, and with sampled ones.

    \b
    holdfast evaluate first
    holdfast evaluate runs/first --episodes 100 --sample --json
    holdfast evaluate first env=memory env.corridor=6
    holdfast evaluate first --certificate
    """
    with reporting_failures(), exits_reported():
        from holdfast.config import load_run_world
        from holdfast.runs import find_run
        from holdfast.runs.folder import CONFIG

        if greedy and sample:
            raise SettingsError("--greedy and --sample: use one of them; without both, the agent plays both ways.")
        folder = find_run(run, runs_dir)
        env = load_run_world(folder / CONFIG, words or [])
        if certificate:
            from holdfast.evaluate import certify_run

            numbers = (episodes or 100, not sample, seed, checkpoint, max_steps, py_agent)
            if as_json:
                typer.echo(json.dumps(certify_run(folder, env, *numbers).to_dict(), indent=2))
                return
            how = "sampled" if sample else "most probable"
            title = f"Mean return and its 95% confidence interval over at least {numbers[0]} episodes, {how} actions, by memory:"

            def show(name: str, found: Estimate) -> None:
                if name == "intact":  # the first one: nothing is printed of a run that is refused
                    typer.echo(title)
                _print_estimate(name, found)

            typer.echo(certify_run(folder, env, *numbers, show).sentence)
            return
        from holdfast.evaluate import evaluate_run

        both, episodes = not (greedy or sample), episodes or 20
        result = evaluate_run(folder, episodes, not sample, seed, checkpoint, max_steps, env, py_agent, both)
        if as_json:
            typer.echo(json.dumps(asdict(result), indent=2))
            return
        typer.echo(f"{result.episodes} episodes of checkpoint {result.checkpoint}")
        for how, found in (("sampled" if sample else "greedy", result), ("sampled", result.sampled)):
            if found is not None:
                returns = f"return {found.return_mean:.4g} +- {found.return_std:.4g}"
                info = "".join(f", {name} {value:.4g}" for name, value in found.info.items())
                typer.echo(f"{how:<8} {returns}, length {found.length_mean:.4g}{info}")


def _print_estimate(name: str, found: Estimate) -> None:
    from holdfast.evaluate.certificate import MEANINGS

    typer.echo(f"{name:<10}{found!s:<28}{MEANINGS.get(name, 'only so much of the past remembered')}")
