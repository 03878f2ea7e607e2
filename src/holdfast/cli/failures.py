"""Report log messages and errors of a command on stderr, without a traceback, and set the exit code."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

import typer

from holdfast.cli.github import annotation
from holdfast.config.ranks import own_rank, started_ranks
from holdfast.errors import HoldfastError, SettingsError, for_terminal, place_of, reason_of

BAD_SETTINGS, FAILED, INTERRUPTED = 2, 1, 130


class Output(StrEnum):
    """What `holdfast audit` prints to stdout: text, --json or --github."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


def error_for(output: Output, message: str) -> str:
    """Return what is printed to stdout instead of a report if the audit cannot run; '' for text, which uses stderr."""
    message = for_terminal(message)
    if output == Output.JSON:
        return json.dumps({"error": message}, indent=2) + "\n"
    return annotation(message, "holdfast audit") + "\n" if output == Output.GITHUB else ""


class StderrHandler(logging.StreamHandler):
    """Print log messages to the current sys.stderr, because progress bars replace sys.stderr while they are shown."""

    def format(self, record: logging.LogRecord) -> str:
        return for_terminal(super().format(record))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        if self.stream is not None:  # None in a library, if it was closed before Python started
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's name)
        """Drop a message that cannot be written: custom code may have replaced sys.stderr."""


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Print Holdfast's log messages to stderr only, and clean the warnings of other libraries."""
    logger, handler = logging.getLogger("holdfast"), StderrHandler()
    before, format_warning = (logger.level, logger.propagate), warnings.formatwarning
    warnings.formatwarning = lambda *args, **kwargs: for_terminal(format_warning(*args, **kwargs)) + "\n"
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    if (rank := own_rank()) > 0:  # rank 0 reports what concerns all ranks; others only errors and their own workers
        logger.setLevel(logging.ERROR)
        logging.getLogger("holdfast.envs").setLevel(logging.WARNING)
        handler.setFormatter(logging.Formatter(f"rank {rank}: %(message)s"))
    logger.propagate = False
    try:
        yield
    finally:
        warnings.formatwarning = format_warning
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def _claim_report() -> bool:
    """Return whether this rank should print an error that it met before it joined the others."""
    from holdfast.ranks.store import claim_report  # slow, because it imports torch

    return claim_report()


@contextmanager
def reporting_failures() -> Iterator[None]:
    """Run a command: print its log messages, and turn errors and signals into a message and an exit code."""
    try:
        with log_to_stderr():
            yield
    except HoldfastError as error:
        if error.claimed or started_ranks() == 1 or _claim_report():
            typer.echo(for_terminal(str(error)), err=True)
        raise typer.Exit(BAD_SETTINGS if isinstance(error, SettingsError) else FAILED) from None
    except OSError as error:
        if error.filename is None or place_of(error):  # custom code failed: its traceback is needed
            raise
        typer.echo(for_terminal(f"{error.filename}: {reason_of(error)}."), err=True)
        raise typer.Exit(BAD_SETTINGS) from None
    except KeyboardInterrupt as stop:
        code = getattr(stop, "code", None)
        if code is None:  # otherwise training has reported where it stopped
            typer.echo("interrupted", err=True)
        raise typer.Exit(code or INTERRUPTED) from None
