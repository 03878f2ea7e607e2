"""A run is a folder that contains config.yaml, metrics.jsonl, summary.json and checkpoints/."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from uuid import uuid4

import pydantic_core

from holdfast.config import Settings, settings_to_yaml
from holdfast.custom_code import end_if_forked
from holdfast.errors import CheckpointError, HoldfastError, SettingsError, name_some, one_line, printable, reason_of
from holdfast.files import Folder, restore_umask, write_error
from holdfast.runs.lock import RunLock

CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
# Metrics that differ between identical runs.
TIMING = frozenset({"wall_s", "sps", "rss_mb", "share_world", "share_inference", "share_learning"})
HEALTHY_PARITY = 1e-5  # parity_max_abs_logratio of a correct policy stays below; rounding keeps it near 1e-6
MAX_LINE = 2**20  # bytes of one update's metrics; a few thousand are usual
SUMMARY = "summary.json"
CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"  # of a checkpoint, written last
FAILED = "failed.json"  # the error that ended the run; a run without it and without a summary was stopped or killed
RUN_ID = "run-id"  # made when the run begins; every checkpoint of the run contains it


class RunFolder:
    """The folder of a run in progress. This object holds the folder's lock, so no other process writes to it.

    saved: the update number of the newest usable checkpoint, 0 for none.
    """

    def __init__(self, folder: Folder, lock: RunLock, saved: int = 0):
        self.folder = folder
        self.path = folder.path
        self.saved = saved
        self.checkpoints = folder.path / CHECKPOINTS
        self._lock = lock
        self._metrics = folder.append(METRICS)
        self._unwritten: list[bytes] = []
        self._owner = os.getpid()

    def end_unless_owner(self) -> None:
        """End this process at once if it is a child that the world or the policy forked: the run is not its own."""
        end_if_forked(self._owner)

    @classmethod
    def create(cls, settings: Settings, runs: Path | None = None) -> RunFolder:
        """Create the run's folder in `runs` (None: runs_dir) and write config.yaml; without run=NAME, generate a name."""
        with _as_settings_error(settings), ExitStack() as on_error:
            path = _make_folder(settings, runs or runs_folder(settings))
            folder = Folder.open(path)
            on_error.callback(folder.close)
            lock = RunLock.take(folder)
            on_error.callback(lock.release)
            if has_begun(path):  # another process created it first
                raise SettingsError(
                    f"run={path.name}: {path} already holds a run.\nChoose another run=NAME, or delete that folder."
                )
            run = cls(folder, lock)
            on_error.push(run)
            run._write_config(settings)
            folder.replace(RUN_ID, f"{uuid4().hex}\n".encode())
            on_error.pop_all()
        return run

    @classmethod
    def reopen(
        cls, path: Path, settings: Settings, saved: int, metrics_bytes: int, finished: bool = False
    ) -> RunFolder:
        """Open a run to resume it after update `saved`; remove the metrics of later updates.

        metrics_bytes: the earlier size of metrics.jsonl; if it has changed, another process has resumed the run.
        finished: no update is left, so config.yaml keeps the settings that the run was trained with.
        """
        with _as_settings_error(settings), ExitStack() as on_error:
            folder = Folder.open(path)
            on_error.callback(folder.close)
            lock = RunLock.take(folder)
            on_error.callback(lock.release)
            if size_of_metrics(path) != metrics_bytes:
                raise SettingsError(f"run={path.name}: another process has just resumed this run. Try again.")
            run = cls(folder, lock, saved)
            on_error.callback(run._metrics.close)
            run._cut_metrics(saved)
            if not finished:
                run._write_config(settings)
            for name in (SUMMARY, FAILED):
                folder.remove(name)
            on_error.pop_all()
        return run

    def log_metrics(self, row: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl, whole or not at all. A line that failed is written again before the next one."""
        self._unwritten.append(_to_json(row))
        self._write_lines()

    def _write_lines(self) -> None:
        self.end_unless_owner()
        data, start = b"".join(self._unwritten), None
        try:
            start = self._metrics.seek(0, io.SEEK_END)
            written = self._metrics.write(data)
            if written != len(data):
                raise OSError("only part of a line was written")
        except OSError as error:
            with suppress(OSError):
                self._metrics.truncate(start)
            raise write_error(self.path / METRICS, error) from error
        self._unwritten.clear()

    def sync_metrics(self) -> None:
        """Sync metrics.jsonl to disk, so that no checkpoint is newer than the metrics."""
        self._write_lines()
        try:
            os.fsync(self._metrics.fileno())
        except OSError as error:
            raise write_error(self.path / METRICS, error) from error

    def _cut_metrics(self, updates: int) -> None:
        """Keep the lines of updates 1 to `updates` and remove later ones; raise HoldfastError if a line to keep is missing."""
        rows = read_metrics(self.path, updates)  # a crash may have damaged later lines, or an attacker added gigabytes
        if len(rows) < updates or any(row.get("update") != number for number, row in enumerate(rows, start=1)):
            raise HoldfastError(
                f"{self.path / METRICS}: some lines of updates 1 to {updates} are missing, so the run cannot be resumed.\n"
                "Restore the file, or delete the checkpoints that are newer than its last line."
            )
        kept = itertools.islice(self.folder.lines(METRICS, MAX_LINE), updates)
        self._metrics.truncate(sum(len(line) + 1 for line in kept))
        os.fsync(self._metrics.fileno())

    def _write_config(self, settings: Settings) -> None:
        named = settings.model_copy(update={"run": self.path.name})
        self.folder.replace(CONFIG, settings_to_yaml(named).encode())

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json atomically."""
        self.end_unless_owner()
        try:
            self.folder.replace(SUMMARY, _to_json(summary, indent=2))
        except OSError as error:
            raise write_error(self.path / SUMMARY, error) from error

    def _write_failure(self, error: BaseException) -> None:
        """Record the error that ended the run. If that fails, as on a full disk, the run counts as stopped."""
        text = printable(one_line(error, 1000), 1000)
        named = text if isinstance(error, HoldfastError) else f"{type(error).__name__}: {text}"
        self.folder.replace(FAILED, _to_json({"error": named}, indent=2))

    def close(self) -> None:
        self.end_unless_owner()
        for close in (self._metrics.close, self._lock.release, self.folder.close):
            with suppress(OSError):  # custom code may have closed the file
                close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: object, error: BaseException | None = None, *_: object) -> None:
        """Close the run. If it failed before its first update, delete the folder, so that the name is free again."""
        self.end_unless_owner()
        with suppress(OSError, HoldfastError):
            if isinstance(error, Exception | SystemExit) and has_begun(self.path):  # not a signal, which stops the run
                self._write_failure(error)
        with suppress(OSError):
            if kind is not None and not has_begun(self.path):
                for name in (METRICS, CONFIG, RUN_ID):
                    self.folder.remove(name)
                self._lock.release()  # deletes the lock file; a process that takes the folder now creates all files again
                self.path.rmdir()  # fails if there are other files in it
        self.close()


def runs_folder(settings: Settings) -> Path:
    """Return the folder that contains all run folders."""
    return Path(os.path.expanduser(settings.runs_dir))  # Path.expanduser would raise for an unknown ~user


def find_run(text: str, runs_dir: Path) -> Path:
    """Return the folder of a run, given its path or its name below `runs_dir`, such as demo or SWEEP/001-seed_0."""
    named = runs_dir / text
    path = named if os.path.isfile(named / CONFIG) else Path(text)  # pathlib raises for long names
    if "/" in text and os.path.isfile(Path(text) / CONFIG):
        path = Path(text)
    if os.path.isfile(path / CONFIG):
        return path
    if not text.strip():
        raise SettingsError("the name of the run is empty.")
    if text.startswith("runs_dir="):
        raise SettingsError(f"{printable(text)}: a setting of training. Use --runs-dir FOLDER.")
    reason = f"has no {CONFIG}, so it is not a run" if os.path.isdir(path) or os.path.isdir(named) else "no such run"
    folders = runs_dir.glob(f"*/{CONFIG}") if os.path.isdir(runs_dir) else ()
    names = sorted(folder.parent.name for folder in folders)
    there = printable(str(runs_dir))
    if near := get_close_matches(Path(text).name, names, n=3, cutoff=0.4):
        hint = f"Nearest of the {len(names)} runs in {there}: {', '.join(map(printable, near))}."
    elif names:
        hint = f"Runs in {there}: {name_some(map(printable, names))}. `holdfast runs` lists all."
    else:
        hint = f"There are no runs in {there}."
    raise SettingsError(f"{printable(text)}: {reason}.\n{hint}")


def has_begun(path: Path) -> bool:
    """Return whether this folder contains a run that has metrics or checkpoints."""
    return size_of_metrics(path) > 0 or os.path.lexists(path / CHECKPOINTS)


def run_id(path: Path) -> str:
    """Return the id of the run in this folder, "" if it has none: runs of older versions, or no run at all."""
    with Folder.open(path) as folder:
        if not folder.has(RUN_ID):
            return ""
        found = folder.read(RUN_ID, max_bytes=100).decode("ascii", "replace").strip()
    if not re.fullmatch(r"[0-9a-f]{1,64}", found):
        raise CheckpointError(f"{path / RUN_ID}: damaged; it must contain the id of the run")
    return found


def size_of_metrics(path: Path) -> int:
    """Return the size of metrics.jsonl in bytes, 0 if it does not exist."""
    with suppress(FileNotFoundError, NotADirectoryError), Folder.open(path) as folder:
        return folder.size(METRICS)
    return 0


def read_metrics(path: str | Path, most: int | None = None) -> list[dict[str, Any]]:
    """Read the rows of a run's metrics.jsonl, at most `most`. An incomplete last line is left out.

    path: the run folder or the file.
    """
    file = Path(path) / METRICS if Path(path).is_dir() else Path(path)
    rows = []
    with Folder.open(file.parent) as folder:
        for number, line in enumerate(itertools.islice(folder.lines(file.name, MAX_LINE), most), start=1):
            try:
                row = json.loads(line) if len(line) <= MAX_LINE else None
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                reason = f"no JSON object, or more than {MAX_LINE:,} bytes"
                raise HoldfastError(f"{file}: line {number} is damaged: {reason}")
            rows.append(row)
    return rows


@contextmanager
def _as_settings_error(settings: Settings) -> Iterator[None]:
    """Turn a write error into a SettingsError about runs_dir."""
    try:
        yield
    except OSError as error:
        raise SettingsError(
            f"runs_dir={settings.runs_dir}: cannot write there: {reason_of(error)}.\n"
            "Choose another folder with runs_dir=PATH."
        ) from error


def _make_folder(settings: Settings, runs: Path) -> Path:
    restore_umask()
    (runs / settings.run).mkdir(parents=True, exist_ok=True)
    if settings.run:
        return runs / settings.run
    world, agent = map(_folder_name, (settings.env.name, settings.policy.agent_name))
    stem = f"{world}-{agent}-s{settings.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    while True:
        with suppress(FileExistsError):
            path = runs / next(names)
            path.mkdir()
            return path


def _folder_name(name: str) -> str:
    """Return the name of a world or an agent with only the characters that every file system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:100].strip(".-") or "own"


def _to_json(row: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Return a row as JSON: NumPy and PyTorch scalars as numbers, NaN and infinities as null."""
    return pydantic_core.to_json(dict(row), indent=indent, inf_nan_mode="null", fallback=lambda x: x.item()) + b"\n"
