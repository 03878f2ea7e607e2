"""One row per run folder: what it is, how far it is, and how it ended. Reads only; nothing in a folder is executed."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args

from holdfast.config.files import read_run_config
from holdfast.config.words import SHORT, flatten
from holdfast.errors import HoldfastError, SettingsError, one_line, printable, reason_of
from holdfast.files import Folder
from holdfast.runs.folder import CONFIG, FAILED, MAX_LINE, METRICS, RUN_ID, SUMMARY, find_run
from holdfast.runs.json_data import find_non_json
from holdfast.runs.lock import is_in_use

State = Literal["running", "stopped", "finished", "failed"]
STATES: tuple[str, ...] = get_args(State)
MAX_FACTS = 100_000  # bytes of summary.json and failed.json; less than 1,000 are usual
MAX_SCAN = 2**28  # bytes of metrics that are searched for the best return: about 350,000 updates
CHUNK = 2**20
RETURN = re.compile(rb'"episode_return":[ ]?(-?[0-9][0-9.eE+-]{0,30})')


@dataclass(frozen=True)
class RunRow:
    """A run in a table. None: not known, or not yet."""

    run: str
    world: str
    agent: str
    steps: int | None
    mean_return: float | None
    best: float | None  # highest mean return of all updates
    state: State
    error: str = ""  # of a failed run


@dataclass(frozen=True)
class FoundRun:
    """A run folder, with its settings as text by full key. They are not validated, so runs of other versions are listed too."""

    name: str  # below the runs folder
    path: Path
    settings: Mapping[str, str]
    began: float  # time; runs are listed in this order


def find_runs(runs_dir: Path) -> tuple[list[FoundRun], list[str]]:
    """Return the runs in a folder and in its sweeps, newest last, and a line about every run that cannot be read."""
    found, problems = [], []
    for name, path in run_folders(runs_dir):
        try:
            settings = {g.key: str(g.value) for g in flatten(read_run_config(path / CONFIG), CONFIG)}
            found.append(FoundRun(name, path, settings, _began(path)))
        except HoldfastError as error:
            problems.append(f"{printable(name, 200)}: skipped: {one_line(error)}")
    return sorted(found, key=lambda run: (run.began, run.name)), problems


def select_runs(runs: list[FoundRun], words: list[str], runs_dir: Path) -> list[FoundRun]:
    """Return the runs that match: any of the names (NAME, SWEEP, `demo-*`, a path) and all of the KEY=VALUE."""
    filters = [word.partition("=") for word in words if "=" in word]
    for key, _, value in filters:
        if key == "state" and value not in STATES:
            raise SettingsError(f"{printable(f'state={value}')}: needs one of {', '.join(STATES)}.")
        if key != "state" and not any(SHORT.get(key, key) in run.settings for run in runs):
            raise SettingsError(f"{printable(f'{key}={value}')}: no run here has the key {printable(key)}.")
    names = [word for word in words if "=" not in word]
    chosen = {path for name in names for path in _named(name, runs, runs_dir)}
    return [
        run
        for run in runs
        if (not names or run.path in chosen) and all(_has(run, SHORT.get(key, key), value) for key, _, value in filters)
    ]


def _named(name: str, runs: list[FoundRun], runs_dir: Path) -> list[Path]:
    plain = name.rstrip("/") or name
    if found := [run.path for run in runs if fnmatchcase(run.name, plain) or run.name.startswith(f"{plain}/")]:
        return found
    if any(c in name for c in "*?["):
        raise SettingsError(f"{printable(name)}: no run in {printable(str(runs_dir))} matches.")
    path = find_run(name, runs_dir)
    if found := [run.path for run in runs if os.path.realpath(run.path) == os.path.realpath(path)]:
        return found
    raise SettingsError(f"{printable(name)}: not a run in {printable(str(runs_dir))}, or skipped. Use --runs-dir.")


def name_runs(words: list[str], runs_dir: Path) -> dict[str, Path]:
    """Return the folders of the runs that these words name, by name: NAME, a path, SWEEP for its runs, or `demo-*`."""
    found: dict[str, Path] = {}
    for word in words:
        plain = word.rstrip("/") or word
        if os.path.isfile(runs_dir / plain / CONFIG):
            found[plain] = runs_dir / plain
            continue
        listed = [] if os.path.isfile(Path(plain) / CONFIG) else find_runs(runs_dir)[0]
        matching = {
            run.name: run.path for run in listed if run.name.startswith(f"{plain}/") or fnmatchcase(run.name, plain)
        }
        found |= matching or {plain: find_run(word, runs_dir)}
    same: dict[str, str] = {}
    for name, path in found.items():
        first = same.setdefault(os.path.realpath(path), name)
        if first != name:
            raise SettingsError(f"{printable(first)} and {printable(name)} are the same run. Name it once.")
    return found


def _has(run: FoundRun, key: str, value: str) -> bool:
    """Whether a setting has this value, as text or as a number."""
    if key == "state":
        with Folder.open(run.path) as folder:
            return state_of(folder) == value
    own = run.settings.get(key)
    with suppress(ValueError, TypeError):
        return float(own or "") == float(value)
    return own is not None and own.lower() in (value.lower(), {"on": "true", "off": "false"}.get(value.lower(), value))


def read_row(run: FoundRun) -> tuple[RunRow, list[str]]:
    """Read the rest of a run's row, and return it with a line about every file that is damaged."""
    world, agent = run.settings.get("env.name", ""), run.settings.get("policy.py_agent", "")
    agent = agent or run.settings.get("policy.agent", "")
    problems: list[str] = []
    steps = value = best = None
    state: State = "stopped"
    error = ""
    try:
        with Folder.open(run.path) as folder:
            state = state_of(folder)
            if state == "failed":
                error = str(read_facts(folder, FAILED).get("error", ""))
            if folder.has(METRICS):
                last = last_metrics(folder)
                steps = whole(last.get("agent_steps"))
                value = number(last.get("episode_return"))
                best = best_return(folder)
    except (HoldfastError, OSError) as problem:
        reason = one_line(problem) if isinstance(problem, HoldfastError) else reason_of(problem)
        problems.append(f"{printable(run.name, 200)}: {reason}")
    return RunRow(run.name, world, agent, steps, value, best, state, error), problems


def state_of(folder: Folder) -> State:
    """Return how a run ended, or that it is running. A run that was killed leaves no record: it counts as stopped."""
    if is_in_use(folder):
        return "running"
    if folder.has(SUMMARY):
        return "finished"
    return "failed" if folder.has(FAILED) else "stopped"


def read_facts(folder: Folder, name: str) -> dict[str, Any]:
    """Read summary.json or failed.json; raise HoldfastError if it is damaged."""
    try:
        value = json.loads(folder.read(name, max_bytes=MAX_FACTS))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or find_non_json(value):
        raise HoldfastError(f"{folder.path / name}: damaged; it must contain a JSON object")
    return value


def last_metrics(folder: Folder) -> dict[str, Any]:
    """Return the last whole line of metrics.jsonl, {} if there is none; raise HoldfastError if it is damaged."""
    size = folder.size(METRICS)
    with folder.open_file(METRICS) as file:
        for length in (2**14, 2 * MAX_LINE):
            file.seek(max(0, size - length))
            lines = (file.read(length) or b"").split(b"\n")
            if len(lines) > 2 or length >= size:
                break
    if len(lines) == 1:
        if size > MAX_LINE:
            raise HoldfastError(f"{folder.path / METRICS}: the last line is damaged: more than {MAX_LINE:,} bytes")
        return {}
    try:
        row = json.loads(lines[-2])
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise HoldfastError(f"{folder.path / METRICS}: the last line is damaged: no JSON object")
    return row


def best_return(folder: Folder) -> float | None:
    """Return the highest mean return in metrics.jsonl, None if there is none or the file is too large to search.

    Searching the bytes takes a tenth of the time of parsing the lines.
    """
    if folder.size(METRICS) > MAX_SCAN:
        return None
    best, rest = -math.inf, b""
    with folder.open_file(METRICS) as file:
        while data := file.read(CHUNK):
            lines, _, rest = (rest + data).rpartition(b"\n")
            if len(rest) > MAX_LINE:
                break  # no line of metrics
            for text in RETURN.findall(lines):
                with suppress(ValueError):
                    best = max(best, float(text))
    return best if math.isfinite(best) else None


def number(value: Any) -> float | None:
    """Return a finite number as float, None for anything else, such as text in a damaged file."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    with suppress(OverflowError):
        return float(value) if math.isfinite(value) else None
    return None


def whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def run_folders(runs_dir: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of every folder with a config.yaml, in `runs_dir` and in the folders in it, such as sweeps."""
    try:
        with os.scandir(runs_dir) as entries:
            found = sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries)
    except FileNotFoundError:
        return
    except OSError as error:
        raise SettingsError(f"{printable(str(runs_dir), 200)}: cannot be read: {reason_of(error)}.") from error
    for name, is_folder, is_link in found:
        path = runs_dir / name
        if not is_folder or name.startswith("."):
            continue
        if os.path.lexists(path / CONFIG):
            yield name, path
        elif not is_link:  # a link could lead back here
            with suppress(OSError), os.scandir(path) as inner:
                below = sorted(entry.name for entry in inner if entry.is_dir(follow_symlinks=False))
                yield from ((f"{name}/{run}", path / run) for run in below if os.path.lexists(path / run / CONFIG))


def _began(path: Path) -> float:
    """Return the time when a run began: that of its id, which is written once, or of its settings if it has none."""
    for name in (RUN_ID, CONFIG):
        with suppress(OSError):
            return os.lstat(path / name).st_mtime
    return 0.0
