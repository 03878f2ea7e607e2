"""Standard streams that may be closed or broken: a closed pipe, a lost terminal, a full disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

OUTPUT_LOST, PIPE_CLOSED = 2, 141  # exit codes; 1 would mean that a check of an audit failed


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


def open_closed_streams() -> None:
    """Open /dev/null for streams that were closed at the start; otherwise a file of the run would get descriptor 0, 1 or 2."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115  (open until the process ends)
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


@contextmanager
def safe_output() -> Iterator[None]:
    """Ignore write errors on stdout and stderr until the command ends; then fail if stdout lost output."""
    out, err = SafeStream(sys.stdout), SafeStream(sys.stderr)
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
        try:
            yield
        except SystemExit as end:
            out.flush()
            if end.code or out.error is None:
                raise
            if isinstance(out.error, BrokenPipeError):  # the reader, such as `| head`, is gone
                sys.exit(PIPE_CLOSED)
            print(f"the output could not be written: {out.error.strerror}.", file=sys.stderr)
            sys.exit(OUTPUT_LOST)
