"""`holdfast audit`: find the subject, run the checks within a time limit, show how far they are."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.failures import BAD_SETTINGS, error_as_json
from holdfast.cli.supervise import leave
from holdfast.errors import SettingsError, place_in

if TYPE_CHECKING:
    from holdfast.audit import Report

CLEAR = "\r\033[K"  # the line that progress is shown on


@dataclass
class Place:
    """What the audit is doing right now, for whoever waits for it."""

    doing: str = "loading torch and the auditor"


def audit_target(
    target: str,
    words: Sequence[str],
    *,
    only: Sequence[str] | None,
    declared: Sequence[str],
    quick: bool,
    seed: int,
    time_limit: float,
    runs_dir: Path,
    py_agent: str | None,
    as_json: bool,
) -> Report:
    place = Place()
    show = sys.stderr.isatty() and not as_json
    # Whatever the policy prints must not get into the report.
    with giving_up_after(time_limit, place, CLEAR if show else "", as_json), turned_aside():
        from holdfast.audit import audit
        from holdfast.audit.audit import check_declared, chosen_checks
        from holdfast.audit.target import find_subject, saying_which
        from holdfast.cli.audit_run import subject_of_run

        chosen_checks(only)  # a misspelt name is said before the policy is made
        check_declared(frozenset(declared))
        place.doing = f"making {target}"
        subject = find_subject(target, words, seed)
        if subject is None:
            subject = subject_of_run(target, words, runs_dir, py_agent)
        elif py_agent is not None:
            raise SettingsError("--py-agent is for runs: it names the code of a policy that a run was trained with.")
        place.doing = "the first run of the policy"
        total = len(chosen_checks(only, quick))
        number = iter(range(1, total + 1))

        def on_check(name: str) -> None:
            place.doing = name
            if show:
                print(f"{CLEAR}{next(number)}/{total} {name}", end="", file=sys.stderr, flush=True)

        try:
            with saying_which(subject):
                return audit(subject, only, seed, quick, on_check, declared)
        finally:
            if show:
                print(CLEAR, end="", file=sys.stderr, flush=True)


@contextmanager
def turned_aside() -> Iterator[None]:
    """What is printed, by Python, by compiled code or by another process, goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def giving_up_after(seconds: float, place: Place, clear: str, as_json: bool) -> Iterator[None]:
    """Ends the process if this takes too long: code of a user's own may never come back, and cannot be interrupted.

    clear: what takes the progress shown so far off the line.
    """
    watched, report_to = threading.get_ident(), os.dup(1)  # what is printed meanwhile goes elsewhere

    def give_up() -> None:
        stack = [*traceback.walk_stack(sys._current_frames()[watched])]
        said = f"not done after {seconds:g} s: gave up in {place.doing}{place_in(reversed(stack))}."
        print(f"{clear}{said} --time-limit sets how long to wait.", file=sys.stderr)
        if as_json:
            os.write(report_to, error_as_json(said).encode() + b"\n")
        leave(BAD_SETTINGS)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        os.close(report_to)
