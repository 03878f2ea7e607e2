"""Stop a run on SIGTERM, Ctrl-C or a lost terminal (SIGHUP), but never during a write; a second signal ends the process at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from holdfast.custom_code import exit_at_once


class Stopped(KeyboardInterrupt):
    """Raised when a signal asks the run to stop. `code` is the exit code."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


class StopSignals:
    """Raise Stopped on SIGTERM, SIGINT or SIGHUP inside `listening()`: at once, or at the end of a `held()` block."""

    def __init__(self) -> None:
        self._held = 0
        self._asked: int | None = None
        self._signalled: int | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # Python runs signal handlers in the main thread only
            return
        before: dict[int, Any] = {}
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup sets SIG_IGN: keep it
                    before[number] = signal.signal(number, self._handle)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        with self.stopping_together():
            yield
        self.raise_if_asked()

    def raise_if_asked(self) -> None:
        """Raise Stopped if a signal arrived inside a `held()` block and has not been raised yet."""
        if self._asked is not None and not self._held:
            number, self._asked = self._asked, None
            raise Stopped(number)

    @contextmanager
    def stopping_together(self) -> Iterator[None]:
        """Inside, never raise Stopped by itself: ranks ask `requested` and stop after the same update."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    @property
    def requested(self) -> int:
        """The number of the signal that asked the run to stop, 0 for none."""
        return self._signalled or 0

    def raise_again(self) -> None:
        """Raise Stopped once more if it was raised where exceptions are ignored, such as in a destructor."""
        if self._signalled is not None:
            raise Stopped(self._signalled)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._signalled is not None:
            exit_at_once(128 + number)  # workers end with their parent; an unfinished checkpoint keeps its hidden name
        self._signalled = number
        if self._held:
            self._asked = number
        else:
            raise Stopped(number)
