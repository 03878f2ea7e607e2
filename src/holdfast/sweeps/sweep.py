"""Run a sweep: start its runs, a number at a time, until all are finished or have failed. Run it again to resume it."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from holdfast.config import load_settings
from holdfast.errors import HoldfastError, SettingsError, printable, reason_of
from holdfast.runs.folder import CHECKPOINTS, runs_folder
from holdfast.runs.lock import is_in_use
from holdfast.sweeps.check import first_refusal
from holdfast.sweeps.plan import Combination, Plan, Run, check_plan, refusal, run_words
from holdfast.sweeps.processes import RunProcess, start, stop_all
from holdfast.sweeps.results import outcome_of
from holdfast.sweeps.store import SWEEP, SweepFolder
from holdfast.sweeps.suggest import Past, propose
from holdfast.trainer.signals import StopSignals

POLL_S = 0.05
MAX_BUILT = 100  # of a larger grid, the agents of combinations that differ in one value are built to check them
IN_USE_S = 60.0  # how long to wait for a run that a killed sweep has left; it stops within seconds


def check_sweep(plan: Plan, runs_dir: Path, jobs: int) -> Plan:
    """Raise SettingsError if training would refuse a run of the sweep. Writes nothing.

    Worlds and agents are built only before a sweep begins: what a run that exists needs, it says itself.
    """
    check_plan(plan)
    path = runs_dir / plan.name
    first = plan.runs_of((plan.grid() or plan.extremes())[0])[0]
    if runs_folder(load_settings([*first.words, f"runs_dir={path}"])) != path:
        raise SettingsError(
            f"--runs-dir {printable(str(runs_dir))}: needs a path without quotes. Choose another folder."
        )
    if not os.path.lexists(path / SWEEP):
        combinations = plan.grid()
        if not 0 < len(combinations) <= MAX_BUILT:
            combinations = plan.extremes()
        checked = [plan.runs_of(combination)[0] for combination in combinations]  # a seed changes no size
        if found := first_refusal([[*run.words, "progress=off"] for run in checked]):
            number, message = found
            raise SettingsError(refusal(message, checked[number], plan))
    return replace(plan, one_thread=jobs > 1)


class SweepRunner:
    """The state of a sweep in progress. `report` prints a line."""

    def __init__(self, sweep: SweepFolder, jobs: int, report: Callable[[str], None]):
        self.sweep, self.plan, self.jobs, self.report = sweep, sweep.plan, jobs, report
        self.active: list[RunProcess] = []
        self.waiting: deque[Run] = deque()
        self.seconds: list[float] = []  # of each run that this process has finished
        self.failed: dict[str, str] = {}  # reason by run
        self.finished = 0
        self.began_with = 0
        self._in_use_until: dict[str, float] = {}
        self._signals = StopSignals()

    def run(self) -> None:
        """Run everything that is not finished yet. If a signal stops the sweep, its runs save and end first."""
        combinations = self.plan.grid() or [
            Combination(i, v) for i, v in enumerate(self.sweep.proposed[: self.plan.trials])
        ]
        for combination in combinations:
            self._plan_runs(combination)
        self.began_with = self.finished
        if self.finished:
            self.report(f"{self.finished} of {self.plan.num_runs} runs are finished already.")
        with self._signals.listening():
            try:
                while self._start_next() or self.active or self.waiting:
                    self._signals.raise_again()
                    time.sleep(POLL_S)
                    for process in [process for process in self.active if process.ended]:
                        self._end(process)
            finally:
                stop_all(self.active)

    def _plan_runs(self, combination: Combination) -> None:
        for run in self.plan.runs_of(combination):
            if outcome_of(run, self.plan, self.sweep.folder).state == "finished":
                self.finished += 1
            else:
                self.waiting.append(run)

    def _start_next(self) -> bool:
        """Start a run, or propose the next combination, if there is room; return whether something happened."""
        if len(self.active) >= self.jobs:
            return False
        if not self.waiting:
            number = len(self.sweep.proposed)
            if number >= self.plan.trials:
                return False
            values = propose(self.plan.axes, self._past(), number, self.plan.minimize)
            with self._signals.held():
                self.sweep.propose(values)
                self._plan_runs(Combination(number, values))
            return True
        run = self.waiting.popleft()
        if self._is_in_use(run):
            self.waiting.append(run)
            return False
        try:
            self._clear_unstarted(run)
            words = run_words(run, self.plan, self.sweep.path)
            resumed = self.sweep.folder.has(run.name)
            with self._signals.held():  # so that no process is started and forgotten
                self.active.append(start(run, words, self.sweep.folder))
        except (HoldfastError, OSError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            self._fail(run, " ".join(reason.split("\n")))
        else:
            self.report(f"{self._count()} {'resumed' if resumed else 'started'} {run.name}")
        return True

    def _end(self, process: RunProcess) -> None:
        self.active.remove(process)
        process.close()
        run = process.run
        if reason := process.why_unfinished():
            self._fail(run, reason)
            return
        self.finished += 1
        self.seconds.append(process.seconds)
        value = outcome_of(run, self.plan, self.sweep.folder).value
        result = f"{self.plan.metric} {'-' if value is None else format(value, '.4g')}"
        took = timedelta(seconds=round(process.seconds))
        self.report(f"{self._count()} finished {run.name}: {result}, {took}{self._time_left()}")

    def _fail(self, run: Run, reason: str) -> None:
        self.failed[run.name] = reason
        self.report(f"{self._count()} failed {run.name}: {reason}")

    def _count(self) -> str:
        total = str(self.plan.num_runs)
        return f"[{self.finished:>{len(total)}}/{total}]"

    def _time_left(self) -> str:
        left = self.plan.num_runs - self.finished - len(self.failed)
        if left <= 0:
            return ""
        seconds = sum(self.seconds) / len(self.seconds) * left / min(self.jobs, left)
        return f", about {timedelta(seconds=round(seconds))} left"

    def _past(self) -> list[Past]:
        """Return the values of all trials so far with their results: the mean over the seeds, None if one is missing."""
        past: list[Past] = []
        for number, values in enumerate(self.sweep.proposed):
            runs = self.plan.runs_of(Combination(number, values))
            results = [outcome_of(run, self.plan, self.sweep.folder).value for run in runs]
            known = [value for value in results if value is not None]
            past.append((values, sum(known) / len(known) if len(known) == len(runs) else None))
        return past

    def _is_in_use(self, run: Run) -> bool:
        """Whether another process is training this run: one that a killed sweep has started, which is about to end."""
        with suppress(OSError, HoldfastError), self.sweep.folder.subfolder(run.name) as folder:
            if is_in_use(folder):
                until = self._in_use_until.get(run.name)
                if until is None:
                    self.report(f"{self._count()} waiting for {run.name}, which another process is training")
                    until = self._in_use_until[run.name] = time.monotonic() + IN_USE_S
                return time.monotonic() < until  # then starting it fails with the number of that process
        return False

    def _clear_unstarted(self, run: Run) -> None:
        """Delete what is left of a run that was killed before its first checkpoint and would not start from the beginning.

        Training starts all others from the beginning, but refuses a run whose weights or agent come from another file.
        """
        policy = load_settings([*run.words, "progress=off"]).policy
        if not (policy.weights or policy.is_graph_file) or not self.sweep.folder.is_folder(run.name):
            return
        with self.sweep.folder.subfolder(run.name) as own:
            unstarted = not own.has(CHECKPOINTS) and not is_in_use(own)
        if unstarted:
            self.sweep.folder.remove(run.name)
