"""Learning curves from metrics.jsonl: one metric over agent steps."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic_core

from holdfast.errors import HoldfastError
from holdfast.files import Folder
from holdfast.runs.folder import MAX_LINE, METRICS
from holdfast.runs.listing import number, whole

MAX_ROWS = 2_000_000  # lines of a file; runs have thousands


@dataclass(frozen=True)
class Curve:
    """The values of a metric after these agent steps, which rise. Updates without a value are left out.

    last_step: the steps of the whole run.
    """

    steps: Sequence[int]
    values: Sequence[float]
    last_step: int

    def at(self, step: float) -> float | None:
        """Return the newest value after at most `step` steps; None if there is none yet."""
        place = bisect_right(self.steps, step)
        return self.values[place - 1] if place else None

    def thinned(self, most: int) -> Curve:
        """Return the curve with at most `most` points, evenly chosen; the last one stays."""
        count = len(self.steps)
        if count <= most:
            return self
        kept = [i * (count - 1) // (most - 1) for i in range(most)]
        return Curve([self.steps[i] for i in kept], [self.values[i] for i in kept], self.last_step)


def read_curve(path: Path, metric: str) -> tuple[Curve, set[str]]:
    """Read a metric of a run, and the names of all its numbers; raise HoldfastError if metrics.jsonl is damaged."""
    steps: list[int] = []
    values: list[float] = []
    names: set[str] = set()
    last_step = 0
    for line_number, row in enumerate(_rows(path), start=1):
        step, value = whole(row.get("agent_steps")), number(row.get(metric))
        if step is None or step <= last_step:
            raise HoldfastError(f"{path / METRICS}: line {line_number} is damaged: agent_steps does not rise")
        last_step = step
        names |= row.keys()
        if value is not None:
            steps.append(step)
            values.append(value)
    return Curve(steps, values, last_step), names


def _rows(path: Path) -> Any:
    with Folder.open(path) as folder:
        if not folder.has(METRICS):
            return
        for line_number, line in enumerate(itertools.islice(folder.lines(METRICS, MAX_LINE), MAX_ROWS), start=1):
            row = None
            with suppress(ValueError):  # five times as fast as the json module
                row = pydantic_core.from_json(line) if len(line) <= MAX_LINE else None
            if not isinstance(row, dict):
                raise HoldfastError(f"{path / METRICS}: line {line_number} is damaged: no JSON object")
            yield row
