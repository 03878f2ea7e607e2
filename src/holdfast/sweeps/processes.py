"""The processes of a sweep's runs: each is a `holdfast train` of its own, which ends when the sweep does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import HoldfastError, printable, reason_of
from holdfast.files import Folder
from holdfast.runs.folder import FAILED
from holdfast.runs.listing import read_facts, state_of
from holdfast.sweeps.plan import Run
from holdfast.sweeps.store import LOGS

STOP_S = 60.0  # after SIGTERM: a run saves within seconds
TAIL = 20_000  # bytes of a run's output that are searched for its error


class RunProcess:
    """A run that is training. Its output goes to logs/NAME.log in the sweep's folder."""

    def __init__(self, run: Run, words: Sequence[str], sweep: Folder):
        self.run, self.began = run, time.monotonic()
        self._sweep = sweep
        with sweep.subfolder(LOGS, create=True) as logs, logs.append(f"{run.name}.log") as log:
            self._log_start = log.seek(0, os.SEEK_END)
            reader, self._pipe = os.pipe()  # see cli/child.py
            command = [sys.executable, "-m", "holdfast.cli.child", str(reader), "train", *words]
            try:
                # Its own process group: Ctrl-C in a terminal reaches only the sweep, which stops its runs once.
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[reader], process_group=0
                )
            except BaseException:
                os.close(self._pipe)
                raise
            finally:
                os.close(reader)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def close(self) -> None:
        """Release what belongs to a process that has ended."""
        self._process.wait()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def why_unfinished(self) -> str:
        """Return why the ended run is not finished, in one line; '' if it is."""
        code = self._process.returncode
        try:
            with self._sweep.subfolder(self.run.name) as folder:
                state = state_of(folder)
                if code == 0 and state == "finished":
                    return ""
                if state == "failed":
                    return printable(str(read_facts(folder, FAILED).get("error", "")), 300)
        except (OSError, HoldfastError):
            pass  # it ended before it had a folder
        if code < 0 or code - 128 in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            return f"ended by {signal.Signals(-code if code < 0 else code - 128).name}"
        return self._last_output() or f"ended with exit code {code}"

    def _last_output(self) -> str:
        try:
            with self._sweep.subfolder(LOGS) as logs, logs.open_file(f"{self.run.name}.log") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - TAIL))
                lines = [line.strip() for line in (log.read(TAIL) or b"").decode("utf-8", "replace").splitlines()]
        except (OSError, HoldfastError):
            return ""
        return printable(" ".join([line for line in lines if line][-3:]), 300)


def stop_all(processes: Sequence[RunProcess]) -> None:
    """Ask the runs to save and to end, and wait for them; one that has not ended after STOP_S is killed."""
    for process in processes:
        _send(process, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    for process in processes:
        while not process.ended and time.monotonic() < deadline:
            time.sleep(0.05)
        _send(process, signal.SIGKILL)
        process.close()


def _send(process: RunProcess, number: signal.Signals) -> None:
    if not process.ended:
        process._process.send_signal(number)


def start(run: Run, words: Sequence[str], sweep: Folder) -> RunProcess:
    """Start a run; raise HoldfastError if the system cannot."""
    try:
        return RunProcess(run, words, sweep)
    except OSError as error:
        where = printable(str(Path(sweep.path) / LOGS), 200)
        raise HoldfastError(f"{run.name}: the run could not be started ({where}: {reason_of(error)}).") from error
