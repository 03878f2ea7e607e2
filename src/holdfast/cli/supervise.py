"""A command in a process of its own, so that code it runs cannot end it with the exit code of a success."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

from holdfast.cli.failures import BAD_SETTINGS

DONE = b"."


def supervised(command: Callable[[], None]) -> None:
    """Run this in a child and exit as it does; if it was ended by something else than itself, say so and exit with 2.

    os._exit, a crash in compiled code and threads that never end are beyond what Python can catch in its own process.
    """
    heard, said = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        _run(command, said)
    os.close(said)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child gets it, too, and says so
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        print(f"the policy ended the process: {signal.Signals(-code).name}.", file=sys.stderr)
        code = BAD_SETTINGS if -code != signal.SIGTERM else 128 + signal.SIGTERM
    elif code == 0 and os.read(heard, 1) != DONE:
        print("the policy ended the process, with exit code 0, before it was judged.", file=sys.stderr)
        code = BAD_SETTINGS
    sys.exit(code)


def _run(command: Callable[[], None], said: int) -> None:
    """In the child: the command's own exit code, whatever threads are still running."""
    code: object = 1
    try:
        command()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(said, DONE)
    os._exit(code if isinstance(code, int) else int(code is not None))
