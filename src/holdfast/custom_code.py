"""Undo what the code of worlds and policies does to this process, so that no run is lost by it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def umask_restored() -> Iterator[None]:
    """Restore the umask afterwards; with another one, the files of a run could be unreadable."""
    os.umask(before := os.umask(0o077))  # it can only be read by setting it
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def process_restored() -> Iterator[None]:
    """Restore the working directory, to which paths of the user are relative, and the umask afterwards."""
    folder = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    try:
        with umask_restored():
            yield
    finally:
        os.fchdir(folder)
        os.close(folder)
