"""assert_sound: an audit as an assertion, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from holdfast.audit.audit import Report, audit
from holdfast.audit.findings import Verdict
from holdfast.audit.known_bugs import describe_bugs
from holdfast.audit.subject import Subject
from holdfast.audit.target import find_subject, naming_subject, refuse_settings
from holdfast.errors import SettingsError


def assert_sound(
    policy: Subject | Callable[[], Subject] | str,
    *words: str,
    declared: Iterable[str] | str = (),
    checks: Iterable[str] | str | None = None,
    seed: int = 0,
) -> Report:
    """Audit a policy and raise AssertionError with the findings if a check fails.

    policy: a Subject (such as an adapter), a function without arguments that returns one, or a target as on the command
    line with its settings: `assert_sound("./mine.py:MyPolicy", "env=gym:CartPole-v1")`. Runs can only be audited with
    `holdfast audit`. checks: run only these, and fail if one of them cannot run.
    """
    subject = _subject(policy, words, seed)
    with naming_subject(subject):
        report = audit(subject, checks, seed, declared=declared)
    if not report.sound:
        raise AssertionError(describe_failures(report))
    not_run = [finding for finding in report.findings if finding.verdict == Verdict.NOT_RUN]
    if checks is not None and not_run:
        raise AssertionError(f"{report.name}: {not_run[0].check.name} could not run: {not_run[0].evidence}.")
    return report


def _subject(policy: Any, words: tuple[str, ...], seed: int) -> Subject:
    if isinstance(policy, str):
        named = find_subject(policy, words, seed)
        if named is None:
            raise SettingsError(f"{policy}: give KEY=VALUE or FILE.py:NAME. Audit a run with `holdfast audit`.")
        return named
    found = policy() if _makes_subjects(policy) else policy
    if not isinstance(found, Subject):
        what = getattr(found, "__name__", type(found).__name__)
        raise TypeError(
            f"cannot audit {what}. Give a Subject (such as an adapter of holdfast.audit.adapters), a function without "
            "arguments that returns one, or a target as for `holdfast audit`."
        )
    refuse_settings(words, found.name)
    return found


def _makes_subjects(policy: object) -> bool:
    """Whether to call this to get a subject. True for functions and Subject classes, not for modules."""
    if isinstance(policy, type):
        return issubclass(policy, Subject)
    return callable(policy) and not isinstance(policy, Subject | nn.Module)


def describe_failures(report: Report) -> str:
    """Return one paragraph per failed check, with its evidence and fix."""
    blocks = [f"{report.name} is not sound: {len(report.failures)} of {len(report.findings)} checks failed."]
    for finding in report.failures:
        where = f" Look at {finding.where}." if finding.where else ""
        blocks.append(f"{finding.check.name}: {finding.evidence}.\n  {finding.check.fix}{where}")
    return "\n".join([*blocks, *([known] if (known := describe_bugs(report.known_bugs)) else [])])
