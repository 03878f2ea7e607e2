"""The result of a sweep: how each run ended, the table of its combinations, and the picture. Reads only run folders."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.errors import HoldfastError
from holdfast.files import Folder
from holdfast.runs.charts import SEED_POINTS, Line, draw_curves
from holdfast.runs.curves import Curve, read_curve
from holdfast.runs.folder import SUMMARY
from holdfast.runs.listing import State, number, read_facts, state_of
from holdfast.sweeps.plan import SUMMARY_NUMBERS, Combination, Plan, Run, combinations_of
from holdfast.sweeps.store import Proposed

RunState = State | Literal["waiting", "damaged"]
IN_METRICS = {"episode_return_mean": "episode_return", "episode_length_mean": "episode_length"}


@dataclass(frozen=True)
class Outcome:
    """A run of the sweep: its state and, if it is finished, its result."""

    run: Run
    state: RunState
    value: float | None = None


@dataclass(frozen=True)
class Row:
    """A combination: mean and standard deviation of its finished runs' results. None: no such run."""

    combination: Combination
    outcomes: Sequence[Outcome]
    mean: float | None
    std: float | None  # None with fewer than two results

    @property
    def finished(self) -> int:
        return sum(outcome.state == "finished" for outcome in self.outcomes)


def outcome_of(run: Run, plan: Plan, folder: Folder) -> Outcome:
    """Return how far a run of the sweep in this folder is."""
    if not folder.has(run.name):
        return Outcome(run, "waiting")
    try:
        with folder.subfolder(run.name) as own:
            state = state_of(own)
            if state != "finished":
                return Outcome(run, state)
            if plan.metric in SUMMARY_NUMBERS:
                return Outcome(run, state, number(read_facts(own, SUMMARY).get(plan.metric)))
        curve, _ = read_curve(folder.path / run.name, plan.metric)  # logged at some updates only, such as eval/return
        return Outcome(run, state, curve.values[-1] if curve.values else None)
    except (HoldfastError, OSError):
        return Outcome(run, "damaged")


def table_of(plan: Plan, proposed: Proposed, folder: Folder) -> list[Row]:
    """Return the rows of the combinations, the best first; those with unfinished runs come last."""
    rows = []
    for combination in combinations_of(plan, proposed):
        outcomes = [outcome_of(run, plan, folder) for run in plan.runs_of(combination)]
        values = [outcome.value for outcome in outcomes if outcome.value is not None]
        mean = statistics.fmean(values) if values else None
        rows.append(Row(combination, outcomes, mean, statistics.stdev(values) if len(values) > 1 else None))
    sign = 1 if plan.minimize else -1

    def order(row: Row) -> tuple[bool, bool, float, int]:
        return row.mean is None, row.finished < len(row.outcomes), sign * (row.mean or 0.0), row.combination.number

    return sorted(rows, key=order)


def best_words(plan: Plan, rows: Sequence[Row]) -> list[str] | None:
    """Return the words after `holdfast train` for the best combination; None if no run has a result."""
    best = next((row for row in rows if row.mean is not None), None)
    return None if best is None else [*plan.fixed, *best.combination.words]


def picture_of(plan: Plan, rows: Sequence[Row], folder: Path) -> str:
    """Return the picture: the curve of each combination, as the mean of its runs, which are drawn thinly."""
    metric = IN_METRICS.get(plan.metric, "episode_return" if plan.metric in SUMMARY_NUMBERS else plan.metric)
    lines = []
    for row in rows:
        curves = []
        for outcome in row.outcomes:
            try:
                if outcome.state not in ("waiting", "damaged"):
                    curves.append(read_curve(folder / outcome.run.name, metric)[0])
            except (HoldfastError, OSError):
                continue
        curves = [curve for curve in curves if curve.steps]
        if curves:
            label = (row.combination.label or "all seeds") + f"  ({mean_text(row)})"
            lines.append(Line(label, mean_curve(curves), curves if len(curves) > 1 else ()))
    return draw_curves(f"{plan.name}: {metric}", metric, lines)


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """Return the mean of curves, from the first step at which all have a value to the end of the shortest."""
    if len(curves) == 1:
        return curves[0]
    last = min(curve.last_step for curve in curves)
    points = {step for curve in curves for step in curve.thinned(SEED_POINTS).steps if step <= last}
    steps, values = [], []
    for step in sorted(points):
        found = [value for curve in curves if (value := curve.at(step)) is not None]
        if len(found) == len(curves):
            steps.append(step)
            values.append(statistics.fmean(found))
    return Curve(steps, values, last)


def mean_text(row: Row) -> str:
    if row.mean is None:
        return "-"
    return f"{row.mean:.4g}" + (f" +- {row.std:.3g}" if row.std is not None else "")


def table_columns(plan: Plan, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the cells of the table."""
    head = [*(axis.key for axis in plan.axes), plan.metric, "finished"]
    cells = [
        [*row.combination.values.values(), mean_text(row), f"{row.finished} of {len(row.outcomes)}"] for row in rows
    ]
    return head, cells


def to_json(plan: Plan, rows: Sequence[Row], folder: Path, picture: Path | None) -> dict[str, Any]:
    words = best_words(plan, rows)
    return {
        "sweep": plan.name,
        "folder": str(folder),
        "metric": plan.metric,
        "combinations": [
            {
                "values": dict(row.combination.values),
                "mean": row.mean,
                "std": row.std,
                "runs": [
                    {"run": o.run.name, "seed": o.run.seed, "state": o.state, "value": o.value} for o in row.outcomes
                ],
            }
            for row in rows
        ],
        "best": words,
        "picture": None if picture is None else str(picture),
    }


def shown_words(words: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)
