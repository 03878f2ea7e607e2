"""`holdfast audit`: find the subject, run the checks within a time limit, show progress."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.failures import BAD_SETTINGS, Output, error_for
from holdfast.cli.progress_line import CLEAR_LINE, progress_line
from holdfast.cli.supervise import leave
from holdfast.config import load_run_world
from holdfast.config.sections import agent_names
from holdfast.errors import SettingsError, for_terminal, place_in, split_code_name
from holdfast.runs import find_run
from holdfast.runs.folder import CONFIG

if TYPE_CHECKING:
    from holdfast.audit import Report, Subject


@dataclass
class Progress:
    """The current stage of the audit, for the timeout message."""

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
    output: Output,
    flag_maps: bool,
) -> Report:
    """Audit the policy that TARGET names on the command line."""
    progress = Progress()
    show = output == Output.TEXT
    # The policy's output must not be mixed into the report.
    with (
        time_limited(time_limit, progress, CLEAR_LINE if show and sys.stderr.isatty() else "", output),
        stdout_to_stderr(),
    ):
        from holdfast.audit import audit
        from holdfast.audit.audit import select_checks, validate_declared
        from holdfast.audit.target import find_subject, naming_subject

        select_checks(only)  # refuse a misspelt name before the policy is created
        validate_declared(frozenset(declared))
        progress.doing = f"creating {target}"
        subject = find_subject(target, words, seed)
        if subject is None:
            subject = _subject_of_run(target, words, runs_dir, py_agent)
        elif py_agent is not None:
            raise SettingsError("--py-agent is only for auditing a run with a custom policy. Leave it out.")
        progress.doing = "the first run of the policy"
        total = len(select_checks(only, quick))
        number = iter(range(1, total + 1))

        with naming_subject(subject), progress_line(show, redraw_s=0) as line:

            def on_check(name: str) -> None:
                progress.doing = name
                line(f"{next(number)}/{total} {name}")

            return audit(subject, only, seed, quick, on_check, declared, flag_maps)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect stdout to stderr, including the output of compiled code and child processes."""
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
def time_limited(seconds: float, progress: Progress, clear: str, output: Output) -> Iterator[None]:
    """Exit the process if the block takes longer than `seconds`, because custom code may hang and ignore interrupts.

    clear: escape sequence that removes the progress line.
    """
    watched, report_to = threading.get_ident(), os.dup(1)  # fd 1 is redirected inside the block

    def give_up() -> None:
        stack = [*traceback.walk_stack(sys._current_frames()[watched])]
        message = for_terminal(f"timed out after {seconds:g} s in {progress.doing}{place_in(reversed(stack))}.")
        print(f"{clear}{message} Raise --time-limit to wait longer.", file=sys.stderr)
        if report := error_for(output, message).encode():
            with suppress(OSError):  # a full disk or a closed pipe must not keep the process alive
                os.write(report_to, report)
        leave(BAD_SETTINGS)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        os.close(report_to)


def _subject_of_run(target: str, words: Sequence[str], runs_dir: Path, py_agent: str | None) -> Subject:
    """Return the policy in a run's newest usable checkpoint as an audit subject."""
    try:
        folder = find_run(target, runs_dir)
    except SettingsError as error:
        _refuse_other_path(target)
        if target not in agent_names("py_agent"):
            raise
        raise SettingsError(f"{error}\nDid you mean py_agent={target}?") from None
    env = load_run_world(folder / CONFIG, words)
    from holdfast.audit.adapters import ContractPolicy
    from holdfast.audit.sample_observations import observation_sampler
    from holdfast.deploy.loading import load_agent
    from holdfast.policies import MettaAgent

    agent, settings, checkpoint = load_agent(folder, py_agent=py_agent)
    if words:
        agent.initialize_to_world(env.describe(), learn=False)
    return ContractPolicy(
        agent.policy,
        observation_sampler(env),
        f"{folder} at checkpoint {checkpoint.name}",
        lambda: MettaAgent(settings.policy, agent.built_for, agent.graph).policy,
    )


def _refuse_other_path(target: str) -> None:
    """Raise SettingsError if the target is an existing path that is not a run, and suggest what was meant."""
    before_colon, _ = split_code_name(target)
    if os.path.isdir(before_colon):  # os.path, because Path raises an error for names that are too long
        raise SettingsError(f"{before_colon}: is a folder, not a Python file. Name a file in it.")
    file = next((path for path in (target, before_colon) if os.path.isfile(path)), "")
    if file.endswith((".yaml", ".yml")):
        raise SettingsError(f"{file}: is not a Python file. Did you mean agent={file}?")
    if file:
        raise SettingsError(f"{file}: is not a Python file. Give a custom policy as FILE.py:NAME.")
