"""How a command ends when something is wrong: one message, one exit code, no traceback."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from holdfast.errors import HoldfastError, SettingsError

BAD_SETTINGS, FAILED, INTERRUPTED, PIPE_CLOSED = 2, 1, 130, 141


def error_as_json(message: str) -> str:
    """What stands in the place of a report that was asked for as JSON."""
    return json.dumps({"error": message}, indent=2)


@contextmanager
def telling_failures() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()
    except HoldfastError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(BAD_SETTINGS if isinstance(error, SettingsError) else FAILED) from None
    except KeyboardInterrupt as stop:
        code = getattr(stop, "code", None)
        if code is None:  # training has said where it stopped
            typer.echo("interrupted", err=True)
        raise typer.Exit(code or INTERRUPTED) from None
    except BrokenPipeError:
        # `| head` has gone; the interpreter would complain once more when it flushes stdout on its way out
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(PIPE_CLOSED) from None
