"""Contain custom code: restore the working directory and umask, and report calls of sys.exit and os._exit."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from holdfast.errors import HoldfastError, place_of
from holdfast.files import umask_kept

FORKED = 1  # exit code of a child that custom code forked and that would go on with the run
exit_at_once = os._exit  # training replaces os._exit, which custom code may call


@contextmanager
def process_restored() -> Iterator[None]:
    """Restore the working directory, the umask and the output streams afterwards.

    Inside, files of a run are created with that umask.
    """
    folder, out, err = os.open(".", getattr(os, "O_PATH", os.O_RDONLY)), sys.stdout, sys.stderr
    try:
        with forked_child_ended(), umask_kept():
            yield
    finally:
        sys.stdout, sys.stderr = out, err
        try:
            os.fchdir(folder)
            os.close(folder)
        except OSError as error:
            raise HoldfastError(
                "the code of the world or of the policy closed files that it had not opened, so the run could not go on "
                f"({error.strerror}). Check it for os.close and os.closerange."
            ) from error


def end_if_forked(process: int) -> None:
    """End this process at once unless it is `process`: a child that custom code forked must not go on with the run."""
    if os.getpid() != process:
        exit_at_once(FORKED)


@contextmanager
def forked_child_ended() -> Iterator[None]:
    """End a child process that custom code forks in this block, if it leaves the block."""
    process = os.getpid()
    try:
        yield
    finally:
        end_if_forked(process)


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
