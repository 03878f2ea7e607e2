"""Undo what the code of worlds and policies does to this process, so that no run is lost by it; also: broken output."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

from holdfast.errors import HoldfastError, place_of
from holdfast.files import umask_kept


@contextmanager
def process_restored() -> Iterator[None]:
    """Restore the working directory and the umask afterwards; inside, files of a run are created with that umask."""
    folder = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    try:
        with umask_kept():
            yield
    finally:
        os.fchdir(folder)
        os.close(folder)


@contextmanager
def exits_reported() -> Iterator[None]:
    """Turn sys.exit and os._exit in custom code into a HoldfastError, so that the run is saved and does not end in silence."""
    really, process = os._exit, os.getpid()

    def raise_instead(code: int) -> NoReturn:
        if os.getpid() != process or threading.current_thread() is not threading.main_thread():
            really(code)  # a child process may exit, and in a thread, an exception would have no effect
        raise SystemExit(f"os._exit({code})")

    os._exit = raise_instead
    try:
        yield
    except SystemExit as error:
        called = error.code if str(error.code).startswith("os._exit") else f"sys.exit({error.code})"
        raise HoldfastError(
            f"the code of the world or of the policy called {called}{place_of(error)}. Raise an exception there instead."
        ) from error
    finally:
        os._exit = really


class SafeStream:
    """Wrap an output stream: after a write error (closed pipe, lost terminal, full disk), discard all further output.

    error: the first write error; None if there was none.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream._stream if isinstance(stream, SafeStream) else stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._attempt(self._stream.write, text.encode(encoding, "replace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def _attempt(self, call: Callable[..., object], *args: str) -> None:
        if self._stream.closed:
            return
        try:
            call(*args)
        except OSError as error:
            self.error = self.error or error
            with open(os.devnull, "w") as nowhere:  # also for what is still in a buffer, and flushed at exit
                os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
