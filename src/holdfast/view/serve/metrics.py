"""The numbers in metrics.jsonl while it grows: only new lines are read, and curves are thinned with their extremes kept."""

from __future__ import annotations

import io
import os
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pydantic_core

from holdfast.errors import HoldfastError, one_line
from holdfast.files import Folder
from holdfast.runs.folder import MAX_LINE, METRICS
from holdfast.runs.listing import CHUNK, number

MAX_CELLS = 20_000_000  # numbers of one run in memory: 160 MB; 10,000 updates have 300,000
MAX_NAMES = 500  # metrics of one run; about 30 are usual
MAX_NAME = 200  # characters
MAX_POINTS = 2_000  # of one curve in one answer
REMEMBERED = 512  # bytes before the place where reading continues; if they have changed, the file was cut or replaced
STEPS, SECONDS = "agent_steps", "wall_s"
NAN = float("nan")


class DamageError(HoldfastError):
    """The content of a file is damaged. Reading it again does not help, unlike after other errors."""


class Tail:
    """Where reading of a growing file has arrived."""

    def __init__(self) -> None:
        self.offset = 0  # bytes of the complete lines read
        self.at_end = False  # whether the last look has reached the end of the file
        self._inode, self._before = -1, b""

    def continues(self, file: io.FileIO) -> bool:
        """Return whether what was read is still in the file; if not, reading starts again at its beginning."""
        found = os.fstat(file.fileno())
        same = found.st_ino == self._inode and found.st_size >= self.offset
        if same and self._before:
            same = os.pread(file.fileno(), len(self._before), self.offset - len(self._before)) == self._before
        if not same:
            self._inode, self.offset, self._before = found.st_ino, 0, b""
        return same

    def blocks(self, file: io.FileIO, most: int | None = None) -> Iterator[bytes]:
        """Yield the complete lines that are new, in blocks, until about `most` bytes are read, at least one line.

        After an error, the next call continues after the last block that was yielded.
        """
        rest, done = b"", 0
        file.seek(self.offset)
        self.at_end = False
        while (most is None or done < most or done == len(rest)) and (data := file.read(CHUNK)):
            done += len(data)
            lines, newline, rest = (rest + data).rpartition(b"\n")
            if len(rest) > MAX_LINE:
                raise DamageError(f"{METRICS} is damaged: a line has more than {MAX_LINE:,} bytes")
            if newline:
                self.offset += len(lines) + 1
                self._before = (self._before + lines[-REMEMBERED:] + newline)[-REMEMBERED:]
                yield lines
        self.at_end = file.tell() >= os.fstat(file.fileno()).st_size


class Extremes:
    """The highest return and the largest parity error of a run, found without parsing its lines."""

    NAMES = (b'"episode_return":', b'"parity_max_abs_logratio":')

    def __init__(self) -> None:
        self._tail, self._found = Tail(), [-np.inf, -np.inf]

    def read(self, file: io.FileIO, most: int) -> bool:
        """Read at most about `most` new bytes; return whether the file has been read to its end."""
        if not self._tail.continues(file):
            self._found = [-np.inf, -np.inf]
        for lines in self._tail.blocks(file, most):
            for place, name in enumerate(self.NAMES):
                for piece in lines.split(name)[1:]:
                    with suppress(ValueError):
                        value = float(piece[:40].split(b",", 1)[0].split(b"}", 1)[0])
                        self._found[place] = max(self._found[place], value if np.isfinite(value) else -np.inf)
        return self._tail.at_end

    @property
    def offset(self) -> int:
        """Return how many bytes have been read."""
        return self._tail.offset

    @property
    def best_return(self) -> float | None:
        return number(self._found[0])

    @property
    def worst_parity(self) -> float | None:
        return number(self._found[1])


@dataclass(frozen=True)
class Points:
    """A curve with few points. mean_*: the average of each group of `group` rows; empty if every row is a point."""

    x: list[float]
    y: list[float]
    group: int
    mean_x: list[float]
    mean_y: list[float]


class Columns:
    """All numbers of a run by name, one per update. Lines after a damaged one are left out.

    stamp: changes whenever the numbers do, unless `failure` is set.
    failure: why the file could not be read to its end; the next refresh tries again.
    """

    def __init__(self, path: Path, inside: int = 0):
        """inside: how many parts of the path must not be links."""
        self._path, self._inside = path, inside
        self._forget()
        self._tail = Tail()
        self.stamp: tuple[int, ...] = ()
        self.failure = ""

    def _forget(self) -> None:
        self._values: dict[str, array[float]] = {}
        self._rows, self._last_step, self._damage = 0, 0, ""

    @property
    def problem(self) -> str:
        """Return why numbers are missing, "" if none are."""
        return self._damage or self.failure

    @property
    def names(self) -> list[str]:
        return sorted(name for name, values in self._values.items() if len(values))

    def refresh(self) -> None:
        """Read what has been added to the file. Errors are recorded, not raised."""
        self.failure = ""
        try:
            with Folder.open(self._path, self._inside) as folder:
                if not folder.has(METRICS):
                    self._forget()
                    self.stamp, self._tail = (), Tail()
                    return
                with folder.open_file(METRICS) as file:
                    self._read(file)
        except (HoldfastError, OSError) as error:
            self.failure = one_line(error)

    def _read(self, file: io.FileIO) -> None:
        found = os.fstat(file.fileno())
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp == self.stamp:
            return
        if not self._tail.continues(file):
            self._forget()
        try:
            for lines in self._tail.blocks(file):
                self._add(lines.split(b"\n"))
        except DamageError as error:
            self._damage = self._damage or one_line(error)
        self.stamp = stamp  # only now: a read that fails halfway is repeated

    def _add(self, lines: list[bytes]) -> None:
        for line in lines:
            if self._damage:
                return
            row: Any = None
            with suppress(ValueError):
                row = pydantic_core.from_json(line)
            step = number(row.get(STEPS)) if isinstance(row, dict) else None
            if step is None or step <= self._last_step:
                what = "not a JSON object" if not isinstance(row, dict) else f"{STEPS} does not increase"
                self._damage = f"{METRICS}: line {self._rows + 1} is damaged: {what}"
            elif (self._rows + 1) * len(self._values) > MAX_CELLS:
                self._damage = (
                    f"{METRICS}: only the first {self._rows:,} lines are shown; more would exceed {MAX_CELLS:,} numbers"
                )
            else:
                self._last_step = step
                self._add_row(row)

    def _add_row(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            values = self._values.get(name)
            if values is None:
                if number(value) is None or len(name) > MAX_NAME or len(self._values) >= MAX_NAMES:
                    continue
                values = self._values[name] = array("d")
            if len(values) < self._rows:
                values.extend([NAN] * (self._rows - len(values)))
            found = number(value)
            values.append(NAN if found is None else found)
        self._rows += 1

    def curve(self, metric: str, over: str, most: int) -> Points | None:
        """Return a metric over agent steps or seconds, with at most `most` points; None if there is none of it."""
        if metric not in self._values or over not in self._values:
            return None
        y = np.array(self._values[metric], dtype=np.float64)
        x = np.array(self._values[over], dtype=np.float64)[: len(y)]
        y = y[: len(x)]
        kept = np.isfinite(x) & np.isfinite(y)
        x, y = x[kept], y[kept]
        if len(x):
            kept = x >= np.maximum.accumulate(x)  # a clock that was set back
            x, y = x[kept], y[kept]
        return thin(x, y, most) if len(x) else None


def thin(x: np.ndarray, y: np.ndarray, most: int) -> Points:
    """Return at most `most` of the points: the first, the last, and the lowest and highest of each group."""
    count = len(x)
    if count <= most:
        return Points(_short(x), _short(y), 1, [], [])
    size = -(-count // max(1, (most - 2) // 2))
    starts = np.arange(0, count, size)
    padded = np.concatenate([y, np.full(len(starts) * size - count, y[-1])]).reshape(-1, size)
    places = np.concatenate([[0, count - 1], starts + padded.argmin(1), starts + padded.argmax(1)])
    chosen = np.unique(np.minimum(places, count - 1))
    ends = np.minimum(starts + size, count)
    means = np.add.reduceat(y, starts) / (ends - starts)
    return Points(_short(x[chosen]), _short(y[chosen]), size, _short(x[ends - 1]), _short(means))


def _short(values: np.ndarray) -> list[float]:
    """Return numbers with few digits: steps exactly, others as a screen can show them."""
    return [int(v) if v.is_integer() and abs(v) < 2**53 else float(f"{v:.7g}") for v in values.tolist()]
