"""Notice a rank that has stopped: its heartbeat, a number in the job's store, no longer rises."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

logger = logging.getLogger(__name__)

INTERVAL = 0.5  # seconds between two beats
NOT_STARTED, LEFT = -1, -2
exit_at_once = os._exit  # training replaces os._exit, which custom code may call


class Heartbeat:
    """A thread that raises this rank's number and ends the process if the next rank's number stays the same.

    Each rank watches one other, so the number of requests grows with the number of ranks, not with its square.
    pids: the processes of the ranks on this host. If one of them has stopped, it is killed, because it would not react to
    the SIGTERM of torchrun, which would wait for it.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        names: Sequence[str],
        pids: Mapping[int, int],
        timeout: float,
        report: Callable[[str], None],
    ):
        self._store, self._names, self._pids, self._timeout = store, names, pids, timeout
        self._report = report
        self._rank, self._watched = rank, (rank + 1) % len(names)
        self._leaving = threading.Event()
        self._answered = monotonic()
        self._store.set(f"beat/{rank}", "0")  # it may stop before the thread's first beat
        self._thread = threading.Thread(target=self._run, name="holdfast-heartbeat", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch_store, name="holdfast-store", daemon=True).start()

    def stop(self) -> None:
        """Leave on purpose."""
        self._leaving.set()
        self._thread.join(timeout=INTERVAL)
        with suppress(Exception):  # the store may be gone
            self._store.set(f"beat/{self._rank}", str(LEFT))

    def _run(self) -> None:
        beat, seen, since = 0, NOT_STARTED, monotonic()
        while not self._leaving.wait(INTERVAL):
            try:
                beat += 1
                self._store.set(f"beat/{self._rank}", str(beat))
                key = f"beat/{self._watched}"
                found = int(self._store.get(key)) if self._store.check([key]) else NOT_STARTED
            except Exception:  # torch raises DistStoreError, RuntimeError or others
                if not self._leaving.is_set():
                    self._end(f"rank {self._rank} has lost the connection to the other ranks")
                return
            self._answered = monotonic()
            if found != seen or found < 0:
                seen, since = found, monotonic()
            elif monotonic() - since > self._timeout:
                with suppress(KeyError, OSError):
                    os.kill(self._pids[self._watched], signal.SIGKILL)
                name = f"rank {self._watched} ({self._names[self._watched]})"
                self._end(f"{name} has not responded for {self._timeout:g} s (trainer.rank_timeout)")

    def _watch_store(self) -> None:
        """End the process if the store does not answer: on a network that is cut, a request waits for minutes."""
        while not self._leaving.wait(INTERVAL):
            if monotonic() - self._answered > self._timeout:
                logger.error("rank %d has lost the connection to the other ranks; it ends.", self._rank)
                exit_at_once(1)

    def _end(self, reason: str) -> None:
        self._report(reason)
        exit_at_once(1)
