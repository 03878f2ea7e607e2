"""For people's own tests, and for training: is this policy sound?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from holdfast.audit.audit import Report, audit
from holdfast.audit.findings import Verdict
from holdfast.audit.likeness import in_words
from holdfast.audit.subject import Subject
from holdfast.audit.target import find_subject, refuse_words, saying_which
from holdfast.errors import SettingsError


def assert_sound(
    policy: Subject | Callable[[], Subject] | str,
    *words: str,
    declared: Iterable[str] | str = (),
    checks: Iterable[str] | str | None = None,
    seed: int = 0,
) -> Report:
    """Fails with the findings if a check fails.

    policy: a Subject (an adapter around a policy of any kind), a function without arguments that returns one, or a word
    as on the command line, followed by others: `assert_sound("./mine.py:MyPolicy", "env=gym:CartPole-v1")`. Runs are left
    to `holdfast audit`. checks: these only, and each of them has to be able to run.
    """
    subject = _subject(policy, words, seed)
    with saying_which(subject):
        report = audit(subject, checks, seed, declared=declared)
    if not report.sound:
        raise AssertionError(failures_in_words(report))
    not_run = [finding for finding in report.findings if finding.verdict == Verdict.NOT_RUN]
    if checks is not None and not_run:
        raise AssertionError(f"{report.name}: {not_run[0].check.name} could not run: {not_run[0].evidence}.")
    return report


def _subject(policy: Any, words: tuple[str, ...], seed: int) -> Subject:
    if isinstance(policy, str):
        named = find_subject(policy, words, seed)
        if named is None:
            raise SettingsError(
                f"{policy}: is neither KEY=VALUE nor FILE.py:NAME. A run is audited by `holdfast audit`."
            )
        return named
    found = policy() if _makes_subjects(policy) else policy
    if not isinstance(found, Subject):
        what = getattr(found, "__name__", type(found).__name__)
        raise TypeError(
            f"{what} is no policy the auditor knows. Give a Subject, such as an adapter of holdfast.audit.adapters around it, "
            "a function without arguments that returns one, or words as for `holdfast audit`."
        )
    refuse_words(words, found.name)
    return found


def _makes_subjects(policy: object) -> bool:
    """A function, or a class of subjects. Modules can be called, too, but are policies themselves."""
    if isinstance(policy, type):
        return issubclass(policy, Subject)
    return callable(policy) and not isinstance(policy, Subject | nn.Module)


def failures_in_words(report: Report) -> str:
    """One block per failed check: what was found, and how to mend it."""
    blocks = [f"{report.name} is not sound: {len(report.failures)} of {len(report.findings)} checks failed."]
    for finding in report.failures:
        where = f" Look at {finding.where}." if finding.where else ""
        blocks.append(f"{finding.check.name}: {finding.evidence}.\n  {finding.check.mend}{where}")
    return "\n".join([*blocks, *([known] if (known := in_words(report.known_bugs)) else [])])
