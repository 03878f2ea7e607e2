"""Compare runs: the settings that differ, and their returns after equal numbers of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.config import load_run_settings
from holdfast.config.nearest import nearest
from holdfast.errors import SettingsError, printable
from holdfast.files import Folder
from holdfast.runs.curves import Curve, read_curve
from holdfast.runs.folder import CONFIG
from holdfast.runs.listing import State, state_of
from holdfast.runs.resumable import BOOKKEEPING, flatten

PERCENT = (25, 50, 75, 100)
MISSING = "-"  # of a setting that a run's world or agent does not have


@dataclass(frozen=True)
class Comparison:
    """Several runs by name. values: of the metric, after each of `steps`; None where no episode had ended yet."""

    metric: str
    states: Mapping[str, State]
    settings: Mapping[str, Mapping[str, str]]  # by key, then by run: only settings that differ
    steps: Sequence[int]
    values: Mapping[str, Sequence[float | None]]
    curves: Mapping[str, Curve]


def compare_runs(runs: Mapping[str, Path], metric: str = "episode_return") -> Comparison:
    """Compare the runs in these folders, by name; raise SettingsError if they have no such metric. Writes nothing."""
    settings = {name: dict(flatten(load_run_settings(path / CONFIG).model_dump())) for name, path in runs.items()}
    curves, known, states = {}, set(), {}
    for name, path in runs.items():
        curves[name], names = read_curve(path, metric)
        known |= names
        with Folder.open(path) as folder:
            states[name] = state_of(folder)
    if known and metric not in known:
        raise SettingsError(unknown_metric(metric, known))
    lengths = [curve.last_step for curve in curves.values() if curve.last_step]
    steps = sorted({min(lengths, default=0) * share // 100 for share in PERCENT} - {0})
    values = {name: [curve.at(step) for step in steps] for name, curve in curves.items()}
    return Comparison(metric, states, differing_settings(settings), steps, values, curves)


def differing_settings(settings: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, str]]:
    """Return the settings that differ, by key and then by run, in the order of the keys."""
    keys = dict.fromkeys(key for own in settings.values() for key in own if key not in BOOKKEEPING)
    texts = {key: {run: str(own.get(key, MISSING)) for run, own in settings.items()} for key in keys}
    return {key: of_runs for key, of_runs in texts.items() if len(set(of_runs.values())) > 1}


def unknown_metric(metric: str, known: set[str]) -> str:
    found = nearest(metric, sorted(known))
    hint = f" Did you mean {printable(found)}?" if found else " metrics.jsonl has the names of all metrics."
    return f"--metric {printable(metric)}: no such metric.{hint}"
