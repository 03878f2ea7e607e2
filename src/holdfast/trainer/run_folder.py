"""A run is a folder: config.yaml, metrics.jsonl, summary.json, checkpoints/."""

from __future__ import annotations

import io
import json
import math
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.checkpoint.files import reason_of, replace_durably
from holdfast.config import Settings, settings_to_yaml
from holdfast.errors import HoldfastError, SettingsError

CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
SUMMARY = "summary.json"
CHECKPOINTS = "checkpoints"


class RunFolder:
    """The folder of a run in progress, with one writer: this object."""

    def __init__(self, path: Path, metrics: io.FileIO):
        self.path = path
        self.checkpoints = path / CHECKPOINTS
        self._metrics = metrics

    @classmethod
    def create(cls, settings: Settings) -> RunFolder:
        """Make runs_dir/run and write config.yaml, with the run's real name, into it."""
        check_run(settings)
        try:
            path = _make_folder(settings)
            try:
                # exclusive: of two runs started at the same moment under one name, the second stops here
                run = cls(path, io.FileIO(path / METRICS, "x"))
            except FileExistsError:
                raise _exists(path) from None
            try:
                named = settings.model_copy(update={"run": path.name})
                replace_durably(path / CONFIG, settings_to_yaml(named).encode())
            except BaseException:
                run.close()
                run._remove_if_empty()
                raise
        except OSError as error:
            raise SettingsError(
                f"runs_dir={settings.runs_dir}: cannot write there: {reason_of(error)}.\n"
                "Choose another folder with runs_dir=PATH."
            ) from error
        return run

    def log_metrics(self, row: Mapping[str, Any]) -> None:
        """Append one line. It is in the file when this returns, whole."""
        line = (json.dumps(_plain(row), allow_nan=False) + "\n").encode()
        start = self._metrics.seek(0, io.SEEK_END)
        try:
            written = self._metrics.write(line)
            if written != len(line):
                raise OSError("the disk took only a part of a line")
        except OSError as error:
            self._metrics.truncate(start)
            raise HoldfastError(f"{self.path / METRICS}: cannot be written: {reason_of(error)}") from error

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

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if error is not None:
            self._remove_if_empty()

    def _remove_if_empty(self) -> None:
        """A run that failed before its first row leaves nothing: its name is free for the next try."""
        with suppress(OSError):
            if (self.path / METRICS).stat().st_size == 0 and not self.checkpoints.exists():
                (self.path / METRICS).unlink()
                (self.path / CONFIG).unlink(missing_ok=True)
                self.path.rmdir()  # unless somebody else's files are in it


def check_run(settings: Settings) -> None:
    """Refuse a run name that is taken. Touches nothing, so it can come before worlds and workers."""
    if not settings.run:
        return
    path = _runs(settings) / settings.run
    if path.exists() and not path.is_dir():
        raise SettingsError(f"run={settings.run}: {path} is a file, a run is a folder. Choose another run=NAME.")
    if (path / METRICS).exists() or (path / CHECKPOINTS).exists():
        raise _exists(path)


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a run (its folder, or the metrics.jsonl itself). A last line cut by a crash is left out."""
    file = Path(path) / METRICS if Path(path).is_dir() else Path(path)
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise HoldfastError(f"{file}: cannot be read: {reason_of(error)}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise HoldfastError(f"{file}: line {number} is not a JSON object")
        rows.append(row)
    return rows


def _runs(settings: Settings) -> Path:
    return Path(os.path.expanduser(settings.runs_dir))  # unlike Path.expanduser, an unknown ~user passes as it is


def _make_folder(settings: Settings) -> Path:
    runs = _runs(settings)
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


def _exists(path: Path) -> SettingsError:
    return SettingsError(
        f"run={path.name}: {path} already holds a run.\nChoose another run=NAME, or delete that folder."
    )


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
