"""Run a command in a child process, so that user code cannot end it with a misleading exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from holdfast.cli.failures import BAD_SETTINGS, error_as_json

DONE = b"."
_done_pipes: list[int] = []  # in the child: where it announces a regular exit


def supervised(command: Callable[[], None], as_json: bool = False) -> NoReturn:
    """Run a command in a child and exit with its code; if something else ended the child, report that and exit with 2.

    Python cannot catch os._exit, a crash in compiled code or threads that never end within its own process.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _done_pipes.append(writer)
        _run(command)
    os.close(writer)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child gets it too, and reports it
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGTERM:
        sys.exit(128 + signal.SIGTERM)
    if not _announced(reader):
        how = f"with exit code {code}" if code >= 0 else signal.Signals(-code).name
        message = f"the policy ended the process ({how}) before the audit was done."
        print(message, file=sys.stderr)
        if as_json:
            print(error_as_json(message))
        code = BAD_SETTINGS
    sys.exit(code)


def leave(code: int) -> NoReturn:
    """Exit the child now, even if threads are still running, and announce that it is a regular exit."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        with suppress(OSError, ValueError):  # nobody reads it any more
            if stream is not None:
                stream.flush()
    for pipe in _done_pipes:
        os.write(pipe, DONE)
    os._exit(code)


def _announced(reader: int) -> bool:
    """Whether the child announced its exit. Its own children may still hold the pipe open, so do not wait."""
    os.set_blocking(reader, False)
    try:
        return os.read(reader, 1) == DONE
    except BlockingIOError:
        return False


def _run(command: Callable[[], None]) -> NoReturn:
    """Run the command in the child and exit with its code."""
    code: object = 1
    try:
        command()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    leave(code if isinstance(code, int) else int(code is not None))
