"""`holdfast view`: look at a trained agent, or serve all runs on localhost."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.base import PyAgent, RunsDir, Words, app, check_output
from holdfast.cli.failures import reporting_failures
from holdfast.custom_code import exits_reported
from holdfast.errors import SettingsError, for_terminal, printable, reason_of

CLEAR_LINE = "\r\033[K"
REDRAW_S = 0.1
PAGE = "view.html"  # in the run folder


@app.command()
def view(
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
    episodes: Annotated[int, typer.Option(min=1, max=10_000, help="How many episodes to record.")] = 20,
    sample: Annotated[bool, typer.Option("--sample", help="Sampled actions; default: the most probable ones.")] = False,
    certificate: Annotated[
        bool, typer.Option(help="Measure what the memory is worth; left out anyway if episodes are long.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed for the episodes.")] = 1_000_000,
    checkpoint: Annotated[str | None, typer.Option(help="Checkpoint name, or `best`; default: the newest.")] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Fail if an episode has more steps than this.")] = 100_000,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the server; default: 6420.")] = None,
    py_agent: PyAgent = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """See what an agent remembers: its episodes, its memory over time, and which past observation decided each action.

    \b
    holdfast view first
    holdfast view runs/first --html first.html --episodes 5
    holdfast view first env=memory env.corridor=6
    holdfast view first --gif first.gif --png first.png
    holdfast view

    Without a run, serve all runs of the folder on localhost, live while they train.
    """
    with reporting_failures(), exits_reported():
        if run is None:
            _serve(runs_dir, port)
            return
        if port is not None:
            raise SettingsError("--port: only for the server, which holdfast view without a run starts.")
        check_output("--html", html)
        from holdfast.config import load_run_world
        from holdfast.runs import find_run
        from holdfast.runs.folder import CONFIG
        from holdfast.view.clips import Files, write_files
        from holdfast.view.run_page import see_run
        from holdfast.view.selection import check_agent

        files = Files(gif, mp4, png, agent, episode, step, fps)
        files.check(episodes)
        folder = find_run(run, runs_dir)
        env = load_run_world(folder / CONFIG, words or [])
        if agent:
            check_agent(agent, env.describe().agents_per_env)
        only_files = bool(files.paths) and html is None
        certificate = certificate and not only_files
        with progress_line() as progress:
            seen = see_run(
                folder, env, episodes, not sample, seed, checkpoint, max_steps, py_agent, certificate, progress
            )
            clip_notes = write_files(seen.data, files, progress)
        for line in (*clip_notes, *(f"Wrote {printable(str(path), 150)}" for path in files.paths.values())):
            typer.echo(line)
        if only_files:
            return
        from holdfast.view.page import render_page

        page = render_page(seen.data).encode()
        path = _write(page, html, folder)
        for note in seen.recording.notes:
            typer.echo(note)
        if seen.data["certificate"]:
            typer.echo(seen.data["certificate"]["sentence"])
        typer.echo(
            f"{seen.recording.num_episodes} episodes of checkpoint {seen.data['run']['checkpoint']}: {len(page) / 1e6:.1f} MB"
        )
        if html is None and _has_browser() and webbrowser.open(path.absolute().as_uri()):
            typer.echo(f"Opened {path}")
        else:
            typer.echo(f"Open {path} in a browser.")


def _write(page: bytes, html: Path | None, folder: Path) -> Path:
    """Write the page to the file that the user named, or into the run folder."""
    from holdfast.files import Folder

    if html is not None:
        html.write_bytes(page)
        return html
    try:
        with Folder.open(folder) as files:
            files.replace(PAGE, page)
    except OSError as error:
        raise SettingsError(
            f"{folder / PAGE}: cannot be written ({reason_of(error)}). Name another file: --html FILE."
        ) from error
    return folder / PAGE


def _has_browser() -> bool:
    """Return whether a browser with a window can be opened, instead of one that takes over the terminal."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is being done, on one line that disappears; nothing without a terminal."""
    shown = 0.0

    def show(doing: str) -> None:
        nonlocal shown
        if time.monotonic() - shown > REDRAW_S:
            shown = time.monotonic()
            print(f"{CLEAR_LINE}{for_terminal(doing)}", end="", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield lambda doing: None
        return
    try:
        yield show
    finally:
        print(CLEAR_LINE, end="", file=sys.stderr, flush=True)


def _serve(runs_dir: Path, port: int | None) -> None:
    raise SettingsError(f"{printable(str(runs_dir))}: name a run, as in holdfast view first.")
