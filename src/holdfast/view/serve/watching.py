"""What the site shows of every run in a folder. Each file is read again only when it has changed."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.config.files import read_run_config
from holdfast.config.words import flatten
from holdfast.errors import CheckpointError, HoldfastError, one_line, printable, reason_of
from holdfast.files import Folder
from holdfast.runs.folder import CHECKPOINTS, CONFIG, FAILED, HEALTHY_PARITY, MANIFEST, METRICS, RUN_ID, run_id
from holdfast.runs.listing import last_metrics, number, read_facts, run_folders, state_of, whole
from holdfast.view.serve.metrics import MAX_NAME, MAX_NAMES, Columns, DamageError, Extremes

MAX_RUNS = 2_000
MAX_BYTES = 2**25  # of metrics searched in one look; the others follow in the next one
MAX_COLUMNS = 32  # runs whose numbers stay in memory
MAX_VALUE = 2_000  # characters of a setting
CHECKPOINT = re.compile(r"[0-9]{1,18}")


@dataclass
class WatchedRun:
    """A run folder, and what was last read from it. key: names the run in addresses."""

    key: str
    name: str
    path: Path
    inside: int  # parts of the path below the runs folder: links there lead elsewhere, and are not followed
    settings: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""  # why the run cannot be shown
    began: float = 0.0
    row: dict[str, Any] = field(default_factory=dict)
    searched: bool = True  # whether all of the metrics have been searched for extremes
    _config: tuple[int, ...] = ()
    _metrics: tuple[int, ...] = ()
    _damage: str = ""  # of the metrics
    _last: dict[str, Any] = field(default_factory=dict)
    _extremes: Extremes = field(default_factory=Extremes)

    def refresh(self, allowance: int) -> int:
        """Read what has changed; return how many bytes of metrics were searched, at most about `allowance`."""
        self.problem = ""
        try:
            with Folder.open(self.path, self.inside) as folder:
                self._read_settings(folder)
                return self._read_progress(folder, allowance)
        except (HoldfastError, OSError) as error:
            self.problem = _reason(error)
            return 0

    def _read_settings(self, folder: Folder) -> None:
        if (now := _stamp(folder, CONFIG)) != self._config:
            given = flatten(read_run_config(self.path / CONFIG), CONFIG)
            self.settings = {printable(str(g.key), MAX_NAME): printable(str(g.value), MAX_VALUE) for g in given}
            self._config = now
            with suppress(OSError):
                self.began = os.lstat(self.path / (RUN_ID if folder.has(RUN_ID) else CONFIG)).st_mtime

    def _read_progress(self, folder: Folder, allowance: int) -> int:
        problem, error, used = "", "", 0
        state = state_of(folder)
        try:
            if state == "failed":
                error = str(read_facts(folder, FAILED).get("error", ""))
            used = self._read_metrics(folder, allowance)
        except (HoldfastError, OSError) as found:
            problem = _reason(found)
        total = self.settings.get("trainer.total_timesteps", "")
        with suppress(ValueError, OverflowError):
            total = int(float(total))
        self.row = {
            "world": printable(self.settings.get("env.name", ""), 200),
            "agent": printable(_agent(self.settings), 200),
            "core": printable(self.settings.get("policy.core", ""), 40),
            "state": state,
            "error": printable(error, 1000),
            "problem": printable(problem or self._damage, 300),
            "total": whole(total),
            "steps": whole(self._last.get("agent_steps")),
            "sps": number(self._last.get("sps")),
            "return": number(self._last.get("episode_return")),
            "best": self._extremes.best_return,
            "parity": self._extremes.worst_parity,
            "audit": audit_verdict(self.settings),
            "checkpoint": newest_checkpoint(folder),
            "began": self.began,
            "stamp": "-".join(map(str, self._metrics)),
        }
        return used

    def _read_metrics(self, folder: Folder, allowance: int) -> int:
        if not folder.has(METRICS):
            self._metrics, self._last, self._extremes, self._damage = (), {}, Extremes(), ""
            self.searched = True
            return 0
        now = _stamp(folder, METRICS)
        if now == self._metrics and self.searched:
            return 0
        if now != self._metrics:
            self._last, self._damage = _last_line(folder)
            self._metrics, self.searched = now, False
        if allowance <= 0:
            return 0
        before = self._extremes.offset
        self.searched = True  # also after an error
        try:
            with folder.open_file(METRICS) as file:
                self.searched = self._extremes.read(file, allowance)
        except DamageError as error:
            self._damage = self._damage or one_line(error)
        except (CheckpointError, OSError):
            self._metrics = ()  # try again at the next look
            raise
        return max(0, self._extremes.offset - before)

    @property
    def metric_names(self) -> Iterator[str]:
        return (name for name, value in self._last.items() if number(value) is not None and len(name) <= MAX_NAME)


class Runs:
    """The runs of a folder, at most MAX_RUNS. Not for several threads at once."""

    def __init__(self, runs_dir: Path):
        self.runs_dir = runs_dir
        self._runs: dict[str, WatchedRun] = {}
        self._left_out = 0  # runs beyond MAX_RUNS
        self._columns: OrderedDict[str, Columns] = OrderedDict()

    def refresh(self) -> None:
        """Look at the folder and at all runs in it; raise HoldfastError if the folder cannot be read."""
        found: dict[str, WatchedRun] = {}
        allowance, left_out = MAX_BYTES, 0
        for name, path in run_folders(self.runs_dir):
            if len(found) >= MAX_RUNS:
                left_out += 1
                continue
            key = key_of(name)
            run = found[key] = self._runs.get(key) or WatchedRun(key, printable(name, 200), path, name.count("/") + 1)
            allowance -= run.refresh(allowance)
        self._runs, self._left_out = found, left_out
        for key in [key for key in self._columns if key not in found]:
            del self._columns[key]

    def listed(self) -> dict[str, Any]:
        """Return all runs as JSON: a row per run, those that cannot be read with their reason, and names of metrics."""
        good = [run for run in self._runs.values() if not run.problem]
        names = sorted({name for run in good for name in run.metric_names})
        return {
            "folder": printable(str(self.runs_dir), 300),
            "first_command": first_command(self.runs_dir),
            "runs": [{"key": run.key, "name": run.name, **run.row} for run in good],
            "left_out": self._left_out,
            "unreadable": [{"name": run.name, "reason": run.problem} for run in self._runs.values() if run.problem],
            "metrics": names[:MAX_NAMES],
            "pending": not all(run.searched for run in good),
            "healthy_parity": HEALTHY_PARITY,
        }

    def find(self, key: str) -> WatchedRun | None:
        """Return the run with this key, as it was in the last look at the folder."""
        return self._runs.get(key)

    def view_command(self, run: WatchedRun) -> str:
        """Return what makes a run's page in a terminal."""
        where = "" if self.runs_dir == Path("runs") else f" --runs-dir {_quoted(str(self.runs_dir))}"
        return f"holdfast view {_quoted(run.name)}{where}"

    def columns(self, run: WatchedRun) -> Columns:
        """Return the numbers of a run, read to the present end of its file."""
        columns = self._columns.setdefault(run.key, Columns(run.path, run.inside))
        self._columns.move_to_end(run.key)
        while len(self._columns) > MAX_COLUMNS:
            self._columns.popitem(last=False)
        columns.refresh()
        return columns


def first_command(runs_dir: Path) -> str:
    """Return what starts a first run in this folder."""
    where = "" if runs_dir == Path("runs") else f" runs_dir={_quoted(str(runs_dir))}"
    return f"holdfast train settings=cartpole_no_velocity run=first{where}"


def _quoted(text: str) -> str:
    return shlex.quote(printable(text, 300))


def key_of(name: str) -> str:
    """Return the word that stands for a run in addresses: names may hold any character, also ones that are not Unicode."""
    return hashlib.blake2s(os.fsencode(name), digest_size=8).hexdigest()


def audit_verdict(settings: Mapping[str, str]) -> str:
    """Return the audit verdict that follows from the settings; a run folder does not store it.

    A run with audit=on has a folder only if its audit passed: training would have refused to begin.
    """
    asked, own = settings.get("audit", "auto").lower(), _agent(settings).endswith(".yaml") or ".py" in _agent(settings)
    if asked in ("off", "false"):
        return "off"
    if asked == "warn":
        return "warn"
    return "passed" if asked in ("on", "true") or own else "built in"


def newest_checkpoint(folder: Folder) -> str:
    """Return the name of a run's newest checkpoint, "" if it has none. It is not verified."""
    try:
        if not folder.is_folder(CHECKPOINTS):
            return ""
        with folder.subfolder(CHECKPOINTS) as checkpoints:
            named = [name for name in checkpoints.names() if CHECKPOINT.fullmatch(name)]
            for name in sorted(named, key=int, reverse=True):
                if checkpoints.is_folder(name):
                    with checkpoints.subfolder(name) as files:
                        if files.has(MANIFEST):
                            return name
    except (HoldfastError, OSError):  # removed in the meantime
        pass
    return ""


def id_of(run: WatchedRun) -> str:
    """Return the id of a run, "" if it has none that can be read."""
    with suppress(HoldfastError, OSError):
        return run_id(run.path)
    return ""


def _agent(settings: Mapping[str, str]) -> str:
    return settings.get("policy.py_agent", "") or settings.get("policy.agent", "")


def _last_line(folder: Folder) -> tuple[dict[str, Any], str]:
    """Return the last line of the metrics, and what is damaged in it; raise CheckpointError if it cannot be read now."""
    try:
        return last_metrics(folder), ""
    except CheckpointError:
        raise
    except HoldfastError as error:
        return {}, one_line(error)


def _stamp(folder: Folder, name: str) -> tuple[int, ...]:
    with folder.open_file(name) as file:
        found = os.fstat(file.fileno())
    return found.st_ino, found.st_size, found.st_mtime_ns


def _reason(error: HoldfastError | OSError) -> str:
    return one_line(error) if isinstance(error, HoldfastError) else reason_of(error)
