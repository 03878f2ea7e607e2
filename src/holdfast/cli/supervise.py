"""A command in a process of its own, so that code it runs cannot end it with an exit code that means something else."""

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
_said: list[int] = []  # in the child: the pipe to say on that it ends by itself


def supervised(command: Callable[[], None], as_json: bool = False) -> NoReturn:
    """Run this in a child and exit as it does; if it was ended by something else than itself, say so and exit with 2.

    os._exit, a crash in compiled code and threads that never end are beyond what Python can catch in its own process.
    """
    heard, said = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        _said.append(said)
        _run(command)
    os.close(said)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child gets it, too, and says so
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGTERM:
        sys.exit(128 + signal.SIGTERM)
    if not _has_said(heard):
        how = f"with exit code {code}" if code >= 0 else signal.Signals(-code).name
        message = f"the policy ended the process, {how}, before it was judged."
        print(message, file=sys.stderr)
        if as_json:
            print(error_as_json(message))
        code = BAD_SETTINGS
    sys.exit(code)


def leave(code: int) -> NoReturn:
    """End this process now, whatever threads are still running, as a child that knows what it does."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        with suppress(OSError, ValueError):  # nobody reads it any more
            if stream is not None:
                stream.flush()
    for pipe in _said:
        os.write(pipe, DONE)
    os._exit(code)


def _has_said(heard: int) -> bool:
    """Whether the child that ended had said so. Its own children may still hold the pipe open."""
    os.set_blocking(heard, False)
    try:
        return os.read(heard, 1) == DONE
    except BlockingIOError:
        return False


def _run(command: Callable[[], None]) -> NoReturn:
    """In the child: the command's own exit code."""
    code: object = 1
    try:
        command()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    leave(code if isinstance(code, int) else int(code is not None))
