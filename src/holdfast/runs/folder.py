"""A run is a folder: config.yaml, metrics.jsonl, summary.json, checkpoints/."""

from __future__ import annotations

import io
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.config import Settings, settings_to_yaml
from holdfast.errors import HoldfastError, SettingsError
from holdfast.runs.files import read_whole, reason_of, refuse_unless_regular, replace_durably
from holdfast.runs.lock import RunLock

CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
# What differs between the rows of equal runs.
TIMING = frozenset({"wall_s", "sps", "rss_mb", "share_world", "share_inference", "share_learning"})
LONGEST_LINE = 2**20  # bytes of one update's metrics; real ones take a few thousand
SUMMARY = "summary.json"
CHECKPOINTS = "checkpoints"


class RunFolder:
    """The folder of a run in progress, with one writer: this object, which holds its lock.

    saved: the update of its newest checkpoint that can be used, 0 for none.
    """

    def __init__(self, path: Path, lock: RunLock, saved: int = 0):
        self.path = path
        self.saved = saved
        self.checkpoints = path / CHECKPOINTS
        self._lock = lock
        refuse_unless_regular(path / METRICS)
        self._metrics = io.FileIO(path / METRICS, "a+")
        self._unwritten: list[bytes] = []

    @classmethod
    def create(cls, settings: Settings) -> RunFolder:
        """Make runs_dir/run and write config.yaml, with the run's real name, into it."""
        with _telling_where(settings):
            path = _make_folder(settings)
            lock = RunLock.take(path)
            try:
                if has_begun(path):  # by another that had the lock before us
                    raise SettingsError(
                        f"run={path.name}: {path} already holds a run.\nChoose another run=NAME, or delete that folder."
                    )
                run = cls(path, lock)
            except BaseException:
                lock.release()
                raise
            try:
                run._write_config(settings)
            except BaseException:
                run._leave_nothing()
                run.close()
                raise
        return run

    @classmethod
    def reopen(cls, path: Path, settings: Settings, saved: int, metrics_bytes: int) -> RunFolder:
        """Go on with a run that saved this update: what its metrics say of later ones is forgotten.

        metrics_bytes: the size of its metrics when that was found out.
        """
        with _telling_where(settings):
            lock = RunLock.take(path)
            try:
                if size_of_metrics(path) != metrics_bytes:
                    raise SettingsError(f"run={path.name}: another process has gone on with it meanwhile. Try again.")
                run = cls(path, lock, saved)
                run._cut_metrics(saved)
                run._write_config(settings)
                (path / SUMMARY).unlink(missing_ok=True)
            except BaseException:
                lock.release()
                raise
        return run

    def log_metrics(self, row: Mapping[str, Any]) -> None:
        """Append one line; whole, or not at all. A line that could not be written goes before the next one."""
        self._unwritten.append((json.dumps(_plain(row), allow_nan=False) + "\n").encode())
        self._write_lines()

    def _write_lines(self) -> None:
        data = b"".join(self._unwritten)
        start = self._metrics.seek(0, io.SEEK_END)
        try:
            written = self._metrics.write(data)
            if written != len(data):
                raise OSError("the disk took only a part of a line")
        except OSError as error:
            self._metrics.truncate(start)
            raise HoldfastError(f"{self.path / METRICS}: cannot be written: {reason_of(error)}") from error
        self._unwritten.clear()

    def sync_metrics(self) -> None:
        """Wait until the disk has every line: a checkpoint must not know of updates that the metrics do not."""
        if self._unwritten:
            self._write_lines()
        try:
            os.fsync(self._metrics.fileno())
        except OSError as error:
            raise HoldfastError(f"{self.path / METRICS}: cannot be written: {reason_of(error)}") from error

    def _cut_metrics(self, updates: int) -> None:
        """Leave the lines of updates 1 to `updates`, each of which has to be there."""
        rows = read_metrics(self.path, updates)  # of those after them, a crash may have left anything
        if len(rows) < updates or any(row.get("update") != number for number, row in enumerate(rows, start=1)):
            raise HoldfastError(
                f"{self.path / METRICS}: the lines of updates 1 to {updates} are not all there, so the run cannot go on.\n"
                "Put the file back, or delete checkpoints until those that are left have their lines."
            )
        self._metrics.seek(0)
        end = sum(len(line) + 1 for line in self._metrics.readall().split(b"\n")[:updates])
        self._metrics.truncate(end)
        os.fsync(self._metrics.fileno())

    def _write_config(self, settings: Settings) -> None:
        named = settings.model_copy(update={"run": self.path.name})
        replace_durably(self.path / CONFIG, settings_to_yaml(named).encode())

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json; a reader sees the old one or the new one, never a part."""
        file = self.path / SUMMARY
        text = json.dumps(_plain(summary), allow_nan=False, indent=2) + "\n"
        try:
            replace_durably(file, text.encode())
        except OSError as error:
            raise HoldfastError(f"{file}: cannot be written: {reason_of(error)}") from error

    def close(self) -> None:
        self._metrics.close()
        self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._leave_nothing()
        self.close()

    def _leave_nothing(self) -> None:
        """A run that failed before its first row leaves nothing: its name is free for the next try."""
        with suppress(OSError):
            if not has_begun(self.path):
                (self.path / METRICS).unlink(missing_ok=True)
                (self.path / CONFIG).unlink(missing_ok=True)
                self._lock.release()  # its file is the last; whoever takes the folder now makes all of them anew
                self.path.rmdir()  # unless somebody else's files are in it


def runs_folder(settings: Settings) -> Path:
    return Path(os.path.expanduser(settings.runs_dir))  # unlike Path.expanduser, an unknown ~user passes as it is


def has_begun(path: Path) -> bool:
    """Whether this folder holds a run: something was measured or saved."""
    return size_of_metrics(path) > 0 or (path / CHECKPOINTS).exists()


def size_of_metrics(path: Path) -> int:
    """Bytes; 0 where there are none."""
    try:
        return (path / METRICS).stat().st_size
    except FileNotFoundError:
        return 0


def read_metrics(path: str | Path, most: int | None = None) -> list[dict[str, Any]]:
    """The rows of a run (its folder, or the metrics.jsonl itself), or its first. A last line cut by a crash is left out."""
    file = Path(path) / METRICS if Path(path).is_dir() else Path(path)
    lines = read_whole(file).split(b"\n")[:-1][:most]
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line) if len(line) <= LONGEST_LINE else None
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise HoldfastError(f"{file}: line {number} is not a JSON object of at most {LONGEST_LINE:,} bytes")
        rows.append(row)
    return rows


@contextmanager
def _telling_where(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SettingsError(
            f"runs_dir={settings.runs_dir}: cannot write there: {reason_of(error)}.\n"
            "Choose another folder with runs_dir=PATH."
        ) from error


def _make_folder(settings: Settings) -> Path:
    runs = runs_folder(settings)
    if settings.run:
        path = runs / settings.run
        path.mkdir(parents=True, exist_ok=True)
        return path
    runs.mkdir(parents=True, exist_ok=True)
    world = re.sub(r"[^A-Za-z0-9._-]+", "-", settings.env.name)[:100].strip(".-")
    stem = f"{world}-{settings.policy.agent_name}-s{settings.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    count = 1
    while True:
        path = runs / (stem if count == 1 else f"{stem}-{count}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            count += 1


def _plain(value: Any) -> Any:
    """Values as JSON has them: numbers of NumPy and PyTorch as Python's, NaN and infinities as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if not isinstance(value, bool | int | float | str) and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
