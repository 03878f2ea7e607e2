"""`holdfast view`: look at a trained agent, or serve all runs on localhost."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.base import PyAgent, RunsDir, Words, app
from holdfast.cli.failures import reporting_failures
from holdfast.cli.progress_line import progress_line
from holdfast.custom_code import exits_reported
from holdfast.errors import SettingsError, printable
from holdfast.outputs import check_output

PORT = 6420


@app.command()
def view(
    context: typer.Context,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Name or folder of a run; default: serve all.")
    ] = None,
    words: Annotated[
        Words,
        typer.Argument(metavar="[env=NAME env.KEY=VALUE]", help="Changes to the world; default: the run's world."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the page there; default: view.html in the run folder, and open it."),
    ] = None,
    gif: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a clip as a GIF.")] = None,
    mp4: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a clip as a video; needs ffmpeg.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture of one step.")] = None,
    mettascope: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the episodes there as replays for MettaScope, MettaGrid's viewer."),
    ] = None,
    agent: Annotated[int, typer.Option(min=0, help="Agent in clips and pictures.")] = 0,
    episode: Annotated[
        int | None, typer.Option(min=0, help="Episode in clips and pictures; default: two with different decisions.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Step of --png; default: the one that an earlier observation moved most.")
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option(min=0.1, max=50, help="Steps per second of clips; default: 4, more if they are long."),
    ] = None,
    episodes: Annotated[
        int, typer.Option(min=1, max=10_000, help="Record at least this many, the same number in every environment.")
    ] = 20,
    sample: Annotated[bool, typer.Option("--sample", help="Sampled actions; default: the most probable ones.")] = False,
    certificate: Annotated[
        bool, typer.Option(help="Measure what the memory is worth; left out anyway if episodes are long.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed for the episodes.")] = 1_000_000,
    checkpoint: Annotated[str | None, typer.Option(help="Checkpoint name, or `best`; default: the newest.")] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Fail if an episode has more steps than this.")] = 100_000,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help=f"Port of the server, 0 for any; default: {PORT}.")
    ] = None,
    py_agent: PyAgent = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """See what an agent remembers: its episodes, its memory over time, and which past observation decided each action.

    \b
    holdfast view first
    holdfast view runs/first --html first.html --episodes 5
    holdfast view first env=memory env.corridor=6
    holdfast view first --gif first.gif --png decision.png
    holdfast view

    Without a run, serve all runs of the folder on localhost, live while they train.
    """
    with reporting_failures(), exits_reported():
        if run is None:
            _refuse_options_of_pages(context)
            _serve(runs_dir, PORT if port is None else port)
            return
        check_output("--html", html)
        from holdfast.config import load_run_world
        from holdfast.runs import find_run
        from holdfast.runs.folder import CONFIG
        from holdfast.view.clips import Files, write_files
        from holdfast.view.mettascope import check_replays, replays_written, write_replays
        from holdfast.view.run_page import see_run, write_page
        from holdfast.view.selection import check_agent

        files = Files(gif, mp4, png, agent, episode, step, fps)
        files.check(episodes)
        if html is not None and html.absolute() in {path.absolute() for path in files.paths.values()}:
            raise SettingsError("--html and --gif, --mp4 or --png: name different files.")
        folder = find_run(run, runs_dir)
        if port is not None:
            raise SettingsError("--port: only for the server, which starts without a run: holdfast view --port 8000.")
        env = load_run_world(folder / CONFIG, words or [])
        if mettascope is not None:
            check_replays(mettascope, env)
        if agent:
            check_agent(agent, env.describe().agents_per_env)
        needs_page = html is not None or not (files.paths or mettascope)
        with progress_line() as progress:
            seen = see_run(
                folder,
                env,
                episodes,
                not sample,
                seed,
                checkpoint,
                max_steps,
                py_agent,
                certificate and needs_page,
                progress,
            )
            lines = write_files(seen.data, files, progress)
            lines = [*lines, *(f"Wrote {printable(str(path), 150)}" for path in files.paths.values())]
            if mettascope is not None:
                lines.append(replays_written(write_replays(mettascope, env, seed, seen, progress), seen))
        if needs_page:
            path, size = write_page(seen, folder, html)
            worth = seen.data["certificate"]
            lines = [
                *seen.recording.notes,
                *([worth["sentence"]] if worth else []),
                *lines,
                _shown(seen, path, size, html),
            ]
        typer.echo("\n".join(lines))


def _refuse_options_of_pages(context: typer.Context) -> None:
    """Raise SettingsError for an option that the server has no use for."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE" and parameter.name not in ("port", "runs_dir"):
            off = parameter.secondary_opts and context.params[parameter.name or ""] is False
            option = (parameter.secondary_opts if off else parameter.opts)[0]
            raise SettingsError(f"{option}: needs a run, as in holdfast view RUN {option}.")


def _shown(seen: Any, path: Path, size: int, html: Path | None) -> str:
    """Open the page unless the user named a file, and return the line that says where it is."""
    what = f"{seen.recording.num_episodes} episodes of checkpoint {seen.data['run']['checkpoint']}, {size / 1e6:.1f} MB"
    opened = html is None and _open_in_browser(path.absolute().as_uri())
    return f"{what}: {'opened' if opened else 'open in a browser:'} {printable(str(path), 200)}"


def _open_in_browser(url: str) -> bool:
    """Open a page in a browser with a window, if there is one: others would take over the terminal."""
    import webbrowser

    return _has_screen() and webbrowser.open(url)


def _has_screen() -> bool:
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _serve(runs_dir: Path, port: int) -> None:
    from holdfast.view.serve import serve

    def ready(url: str) -> None:
        typer.echo(f"{printable(str(runs_dir), 150)}: {url}  (Ctrl-C ends it)")
        if sys.stdout.isatty():
            _open_in_browser(url)

    serve(runs_dir, port, ready)
