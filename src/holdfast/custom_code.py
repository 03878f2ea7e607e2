"""Contain custom code: restore the working directory and umask, and report calls of sys.exit and os._exit."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

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


class _OsExit(SystemExit):
    """Raised instead of a call of os._exit."""


@contextmanager
def exits_reported() -> Iterator[None]:
    """Turn sys.exit and os._exit in custom code into a HoldfastError, so that the run is saved and does not end in silence."""
    really, process = os._exit, os.getpid()

    def raise_instead(code: int) -> NoReturn:
        if os.getpid() != process or threading.current_thread() is not threading.main_thread():
            really(code)  # a child process may exit, and in a thread, an exception would have no effect
        raise _OsExit(code)

    os._exit = raise_instead
    try:
        yield
    except SystemExit as error:
        called = "os._exit" if isinstance(error, _OsExit) else "sys.exit"
        raise HoldfastError(
            f"the code of the world or of the policy called {called}({error.code}){place_of(error)}. "
            "Raise an exception there instead."
        ) from error
    finally:
        os._exit = really
