"""Run a command in a child process, so that custom code cannot end the command with a misleading exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from holdfast.cli.failures import BAD_SETTINGS, Output, error_for

DONE = b"."
ENDING_SECONDS = 2.0  # time for threads to end by themselves
_done_pipes: list[int] = []  # in the child: pipes to write DONE to before a normal exit


def supervised(command: Callable[[], None], output: Output = Output.TEXT) -> NoReturn:
    """Run a command in a child process and exit with its exit code; if custom code ended the child, exit with 2.

    A process cannot catch os._exit, a crash in compiled code or threads that never end, but its parent process notices them.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _done_pipes.append(writer)
        _run(command)
    os.close(writer)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child gets the signal too, and reports it
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGTERM:
        sys.exit(128 + signal.SIGTERM)
    if not _announced(reader):
        how = f"with exit code {code}" if code >= 0 else signal.Signals(-code).name
        message = (
            f"the policy ended the process ({how}) before the audit finished. Check its code for exits and crashes."
        )
        print(message, file=sys.stderr)
        print(error_for(output, message), end="")
        code = BAD_SETTINGS
    sys.exit(code)


@contextmanager
def exit_despite_threads() -> Iterator[None]:
    """Exit within ENDING_SECONDS, even if custom code left non-daemon threads, which Python would join."""
    try:
        yield
    except BaseException as end:
        left = [
            thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()
        ]

        def give_up(code: int) -> None:
            message = f"not waiting for thread {left[0].name!r}, which the world or the policy left running"
            with suppress(OSError):
                print(message, file=sys.stderr)
            leave(code)

        if left:
            timer = threading.Timer(ENDING_SECONDS, give_up, [_exit_code(end)])
            timer.daemon = True
            timer.start()
        raise


def leave(code: int) -> NoReturn:
    """Exit the child process at once, even if threads are running, and report a normal exit to the parent."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        with suppress(OSError, ValueError):  # the stream is closed
            if stream is not None:
                stream.flush()
    for pipe in _done_pipes:
        os.write(pipe, DONE)
    os._exit(code)


def _announced(reader: int) -> bool:
    """Return whether the child reported a normal exit. Does not wait: processes started by the child may keep the pipe open."""
    os.set_blocking(reader, False)
    try:
        return os.read(reader, 1) == DONE
    except BlockingIOError:
        return False


def _run(command: Callable[[], None]) -> NoReturn:
    """Run the command in the child process and exit with the command's exit code."""
    code = 0
    try:
        command()
    except BaseException as end:
        code = _exit_code(end)
        if not isinstance(end, SystemExit):
            traceback.print_exc()
    leave(code)


def _exit_code(end: BaseException) -> int:
    if not isinstance(end, SystemExit):
        return 1
    return end.code if isinstance(end.code, int) else int(end.code is not None)
