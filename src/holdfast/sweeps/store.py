"""The folder of a sweep: sweep.json, which says what it consists of, a folder per run, and the output of each run.

A sweep is resumed with the words of the command line. Those in the file are compared with them and shown, never used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.errors import CheckpointError, SettingsError, printable, reason_of
from holdfast.files import Folder, write_error
from holdfast.runs.folder import CONFIG
from holdfast.runs.json_data import dump_json, parse_json
from holdfast.runs.lock import LOCK, RunLock
from holdfast.sweeps.plan import DEFAULT_METRIC, Plan
from holdfast.sweeps.words import MAX_RUNS, Axis

SWEEP, PICTURE, LOGS = "sweep.json", "curves.svg", "logs"
FORMAT = 1
MAX_BYTES = 2**25
Proposed = list[dict[str, str]]  # values by key, of each combination that a search has tried


class SweepFolder:
    """The folder of a sweep that this process runs: it holds the lock."""

    def __init__(self, folder: Folder, plan: Plan, proposed: Proposed):
        self.folder, self.plan, self.proposed = folder, plan, proposed

    @property
    def path(self) -> Path:
        return self.folder.path

    def propose(self, values: Mapping[str, str]) -> None:
        """Record the values of the next combination, before its first run starts."""
        self.proposed.append(dict(values))
        self.save()

    def save(self) -> None:
        try:
            self.folder.replace(SWEEP, dump_json(_to_json(self.plan, self.proposed)))
        except OSError as error:
            raise write_error(self.path / SWEEP, error) from error


@contextmanager
def open_sweep(plan: Plan, runs_dir: Path) -> Iterator[SweepFolder]:
    """Create the folder of a sweep, or open it to resume the sweep; raise SettingsError if it holds anything else."""
    path = runs_dir / plan.name
    with _as_settings_error(runs_dir):
        created = not path.exists()
        folder = Folder.open(path, create=True)
    with folder:
        _refuse_other(folder, plan)  # before the lock is written into a folder of something else
        lock = RunLock.take(folder, "--name ")
        try:
            if folder.has(SWEEP):
                stored, proposed = read_sweep(folder)
                sweep = SweepFolder(folder, _resumed(plan, stored), proposed)
                if sweep.plan.trials != stored.trials:
                    sweep.save()
            else:
                sweep = SweepFolder(folder, plan, [])
                with _as_settings_error(runs_dir):
                    sweep.save()
            yield sweep
        finally:
            lock.release()
            if created and not folder.has(SWEEP):
                with suppress(OSError):
                    path.rmdir()


def _refuse_other(folder: Folder, plan: Plan) -> None:
    """Raise SettingsError if the folder holds anything but a sweep, or what is left of one that was killed as it began."""
    odd = sorted(set(folder.names()) - {LOCK, f".{SWEEP}.partial"})
    if odd and not folder.has(SWEEP):
        what = "is a run" if CONFIG in odd else f"is a folder with other files, such as {printable(odd[0])}"
        raise SettingsError(f"--name {plan.name}: {printable(str(folder.path), 200)} {what}. Choose another --name.")


def find_sweep(name: str, runs_dir: Path) -> Folder:
    """Open the folder of a sweep to look at it; raise SettingsError if there is no sweep of this name."""
    path = runs_dir / name
    with suppress(OSError, ValueError):
        folder = Folder.open(path)
        if folder.has(SWEEP):
            return folder
        folder.close()
    names = []
    with suppress(OSError):
        names = sorted(found.parent.name for found in runs_dir.glob(f"*/{SWEEP}"))
    there = printable(str(runs_dir), 200)
    shown = (
        f"Sweeps in {there}: {', '.join(printable(name) for name in names[:5])}."
        if names
        else f"There are none in {there}."
    )
    raise SettingsError(f"--show {printable(name)}: no such sweep. {shown}")


def read_sweep(folder: Folder) -> tuple[Plan, Proposed]:
    """Read sweep.json; raise SettingsError if it is damaged. It may come from somebody else, so every value is checked."""
    path = folder.path / SWEEP
    try:
        found = parse_json(folder.read(SWEEP, max_bytes=MAX_BYTES), path)
        if isinstance(found, dict) and found.get("format", 0) > FORMAT:
            raise SettingsError(f"{path}: written by a newer version of Holdfast.")
        plan = Plan(
            folder.path.name,
            tuple(_texts(found["fixed"])),
            tuple(_axis(axis) for axis in found["axes"]),
            tuple(_texts(found["seeds"])),
            _text(found.get("metric", DEFAULT_METRIC)),
            found.get("minimize") is True,
            _count(found["trials"]),
            found.get("one_thread") is True,
        )
        proposed = [{axis.key: _text(values[axis.key]) for axis in plan.axes} for values in found["proposed"]]
        if max(plan.num_runs, len(proposed)) > MAX_RUNS or any(not _fits(plan, values) for values in proposed):
            raise ValueError("values that are not part of the sweep")
    except CheckpointError as error:
        raise SettingsError(f"{error}.") from error
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise SettingsError(f"{path}: damaged ({type(error).__name__}: {printable(str(error))}).") from error
    return plan, proposed


def _resumed(plan: Plan, stored: Plan) -> Plan:
    """Return the plan of a sweep that is resumed; raise SettingsError if the command describes another sweep."""
    was, now = _described(stored), _described(plan)
    if was != now:
        key = next(key for key in {**was, **now} if was.get(key) != now.get(key))
        before, after = (printable(side.get(key, f"no {key}"), 100) for side in (was, now))
        raise SettingsError(
            f"--name {plan.name}: that sweep was started with {before}, not with {after}. Choose another --name. "
            f"`holdfast sweep --show {plan.name}` prints its results and its command."
        )
    if plan.trials < stored.trials:
        raise SettingsError(
            f"--trials {plan.trials}: the sweep {plan.name} was started with {stored.trials}; this number may only grow."
        )
    return replace(plan, one_thread=stored.one_thread)


def _described(plan: Plan) -> dict[str, str]:
    """Return what defines a sweep, by key. The metric does so only if it decides what is tried next."""
    seeds = [f"seed={','.join(plan.seeds)}"] if plan.seeds else []
    words = {word.partition("=")[0]: word for word in [*plan.fixed, *map(str, plan.axes), *seeds]}
    if not plan.trials:
        return words
    return {
        **words,
        "--trials": "--trials",
        "--metric": f"--metric {plan.metric}",
        "--minimize": "--minimize" if plan.minimize else "no --minimize",
    }


def _to_json(plan: Plan, proposed: Proposed) -> dict[str, Any]:
    axes = [
        {"key": axis.key, "low": axis.low, "high": axis.high, "whole": axis.whole, "log": axis.log}
        if axis.is_range
        else {"key": axis.key, "values": list(axis.values)}
        for axis in plan.axes
    ]
    return {
        "format": FORMAT,
        "fixed": list(plan.fixed),
        "axes": axes,
        "seeds": list(plan.seeds),
        "metric": plan.metric,
        "minimize": plan.minimize,
        "trials": plan.trials,
        "one_thread": plan.one_thread,
        "proposed": proposed,
    }


def _axis(found: Any) -> Axis:
    if "values" in found:
        values = tuple(_texts(found["values"]))
        if not values:
            raise ValueError("a setting without values")
        return Axis(_text(found["key"]), values)
    low, high = float(found["low"]), float(found["high"])
    if not low < high:
        raise ValueError("an empty range")
    return Axis(_text(found["key"]), (), low, high, found["whole"] is True, found["log"] is True and low > 0)


def _fits(plan: Plan, values: Mapping[str, str]) -> bool:
    return all(
        axis.low <= float(values[axis.key]) <= axis.high if axis.is_range else values[axis.key] in axis.values
        for axis in plan.axes
    )


def _texts(found: Any) -> list[str]:
    if not isinstance(found, list) or len(found) > MAX_RUNS:
        raise TypeError("a list of texts is missing")
    return [_text(item) for item in found]


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError("a text is missing")
    return found


def _count(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= MAX_RUNS:
        raise ValueError("not a number of trials")
    return found


@contextmanager
def _as_settings_error(runs_dir: Path) -> Iterator[None]:
    try:
        yield
    except CheckpointError as error:
        raise SettingsError(str(error)) from error
    except OSError as error:
        raise SettingsError(
            f"--runs-dir {printable(str(runs_dir), 200)}: cannot write there: {reason_of(error)}. Choose another folder."
        ) from error
