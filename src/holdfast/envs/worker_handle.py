"""Control a worker from the parent process: start it, send commands, read answers, describe failures, stop it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil

from holdfast.config.sections import EnvSection
from holdfast.envs.closing import report_failed_close
from holdfast.envs.failures import describe_error, numbered
from holdfast.envs.worker_process import ALIVE, CLOSE_FAILED, DONE, ERRORS, INFOS, SIGNALS, serve
from holdfast.envs.world import ReplayPoint
from holdfast.errors import HoldfastError
from holdfast.spec import WorldSpec

CLOSING_SECONDS = 2.0  # time for workers to exit on their own before they are killed
FAILING_SECONDS = 0.5  # the same limit after a failure; shorter, because other workers may be in a long step

LITTLE_MEMORY = 2**28  # bytes; with less, a machine is probably swapping
OUT_OF_MEMORY = "\nUse fewer workers (trainer.num_workers) or environments (env.num_envs)."

spawn = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Failure:
    what: str  # one line, such as "exited with code 1.", to follow the name of the worker
    error: HoldfastError  # raised if the run stops because of this failure
    reported: bool  # true: the worker sent the error; false: it died or hangs


class Worker:
    """A share of the environments and the process that runs them, which is replaced after a failure."""

    def __init__(self, number: int, env_ids: range, settings: EnvSection, spec: WorldSpec, all_ids: range, memory: Any):
        self.number = number
        self.env_ids = env_ids
        self.envs = slice(env_ids.start - all_ids.start, env_ids.stop - all_ids.start)
        self.slots = slice(self.envs.start * spec.agents_per_env, self.envs.stop * spec.agents_per_env)
        self.failures = 0  # consecutive failures
        self.since = np.zeros(len(env_ids), np.int64)  # [environments] episode number at the last start
        self.answered = False
        self.infos: list[tuple[int, dict[str, float]]] = []  # World.episode_infos of the worker's last step
        self.returning = 0  # DONE answers still expected after a restart: 2, then 1 once built, 0 once replayed
        self.restarted = 0.0  # time of the last restart, on the world's clock
        self.process: Any = None  # multiprocessing does not export the class
        self.world = settings.name
        self._what_to_serve = (settings, env_ids, spec, memory, len(all_ids) * spec.agents_per_env, self.slots)

    def start(self, point: ReplayPoint | None = None) -> None:
        """Start a new process. It sends DONE when its world is built and, if `point` is given, again after replaying up to it."""
        self.returning = 0 if point is None else 2
        commands, self.commands = spawn.Pipe(duplex=False)
        self.answers, answers = spawn.Pipe(duplex=False)
        process = spawn.Process(
            target=serve, args=(commands, answers, *self._what_to_serve, point), name=f"holdfast-worker-{self.number}"
        )
        try:
            with _signals_later():
                process.start()
                self.process = process
        except OSError as error:
            raise HoldfastError(f"{self}: the process could not be started: {describe_error(error)}") from error
        finally:
            commands.close()
            answers.close()

    def kill(self) -> None:
        """Kill the process, even if it is suspended, and close its pipes. Do nothing if no process is running."""
        if self.process is None:
            return
        self.process.kill()
        process, self.process = self.process, None
        process.join()
        process.close()
        self.commands.close()
        self.answers.close()

    def send(self, command: bytes, point: ReplayPoint | None = None) -> None:
        try:
            os.write(self.commands.fileno(), command)
            if point is not None:
                self.commands.send(point)
        except OSError:
            pass  # the process is dead; reading its answer will report the failure

    def read_answer(self) -> Failure | None:
        """Read one answer and set `answered` if the command is done. Return the failure, if any."""
        answer = os.read(self.answers.fileno(), 1)
        self.answered = answer == DONE and self.returning <= 1
        if answer == DONE:
            self.returning = max(0, self.returning - 1)
        if answer in (DONE, ALIVE):
            return None
        if answer == INFOS:
            return self._read_infos()
        return self.reported() if answer else self.death()

    def _read_infos(self) -> Failure | None:
        try:
            self.infos = json.loads(self.answers.recv_bytes())
        except (EOFError, OSError):
            return self.death()
        return None

    def death(self) -> Failure:
        """Describe the failure of a process that died without a report."""
        self.process.join(0.5)
        code = self.process.exitcode
        if code is None:
            return self._silent("closed its pipe", "")
        if code == -signal.SIGKILL:
            return self._silent("was killed by SIGKILL (probably out of memory, unless you killed it)", OUT_OF_MEMORY)
        return self._silent(
            f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}", ""
        )

    def hang(self, seconds: float) -> Failure:
        how, hint = (
            f"has not answered for {seconds:g} s",
            "\nIf a step can take that long, raise trainer.worker_timeout.",
        )
        free = psutil.virtual_memory().available
        if free < LITTLE_MEMORY:
            how, hint = f"{how} (out of memory: only {free / 2**20:.0f} MB are free)", OUT_OF_MEMORY
        return self._silent(how, hint)

    def _silent(self, how: str, hint: str) -> Failure:
        return Failure(f"{how}.", HoldfastError(f"{self} (pid {self.process.pid}) {how}.{hint}"), reported=False)

    def reported(self) -> Failure:
        """Read the error that the worker reported, and return it as a failure with the original error class."""
        try:
            kind, text, origin = json.loads(self.answers.recv_bytes())
        except (EOFError, OSError):
            return self.death()
        if self.returning and kind == "SettingsError":
            kind = "HoldfastError"  # the same settings worked when the worker was first built
        error = ERRORS[kind](f"{text}\nIn {self}" + (f":\n{origin}" if origin else "."))
        first_line = text.partition("\n")[0][:300]
        return Failure(f"failed: {first_line}", error, reported=True)

    def report_close(self, seconds: float) -> None:
        """Warn if close() failed in this worker, or if the worker has not ended within `seconds`."""
        with suppress(OSError, EOFError):
            if self.answers.poll() and os.read(self.answers.fileno(), 1) == CLOSE_FAILED:
                report_failed_close(self.world, self.answers.recv_bytes().decode())
        if self.process.is_alive():
            report_failed_close(self.world, f"{self} has not ended after {seconds:g} s and was killed")

    def __str__(self) -> str:
        return f"worker {self.number} with {numbered('environment', self.env_ids)}"


@contextmanager
def _signals_later() -> Iterator[None]:
    """Delay signals while a process starts, because an interrupted start leaves a child that prints a traceback."""
    came: list[int] = []
    # a signal mask is not enough: Python runs handlers in the main thread, even if another thread received the signal
    here = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in SIGNALS} if here else {}
    # the worker inherits this mask, so that Ctrl-C does not end it during imports; `serve` unblocks the signals
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def stop_workers(workers: list[Worker], seconds: float = CLOSING_SECONDS, report: bool = True) -> None:
    """Close the pipes, which makes workers exit, and kill workers that take longer than `seconds` to exit.

    report: warn about environments whose close() failed. False after a failure: workers may be building or in a long step.
    """
    running = [worker for worker in workers if worker.process is not None]
    for worker in running:
        worker.commands.close()
    deadline = time.monotonic() + seconds
    try:
        for worker in running:
            worker.process.join(max(0.0, deadline - time.monotonic()))
    finally:  # even after a second Ctrl-C
        for worker in running:
            if report:
                worker.report_close(seconds)
            worker.kill()
        workers.clear()
