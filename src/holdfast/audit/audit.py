"""Run the checks on a subject, one after the other, and collect what they found."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch

from holdfast.audit.checks import CHECKS
from holdfast.audit.dependence import DependencyMap
from holdfast.audit.examination import Examination
from holdfast.audit.failing import UnusableError, raised_by_the_auditor
from holdfast.audit.findings import Check, Finding, Judgement, Tally, Verdict, judged
from holdfast.audit.likeness import KnownBug, most_like
from holdfast.audit.script import METHODS, SEQUENCE
from holdfast.audit.subject import DEVIATIONS, NotOfferedError, Subject
from holdfast.audit.waking import left_as_it_was, wake
from holdfast.config.nearest import did_you_mean
from holdfast.errors import HoldfastError, SettingsError, first_line, place_of

RAISED = {"": 1.0}  # broken as a whole, in no form in particular


@dataclass(frozen=True)
class Report:
    """What an audit found about one subject."""

    name: str
    findings: tuple[Finding, ...]
    declared: frozenset[str]
    seconds: float
    calls: tuple[str, ...] = ()  # what could be asked of the policy
    note: str = ""  # what was done to the policy so that it could be heard
    not_scored: tuple[str, ...] = ()  # outputs of acting that learning does not put out
    maps: dict[tuple[str, str], DependencyMap] = field(repr=False, default_factory=dict)

    @property
    def failures(self) -> list[Finding]:
        """The most telling first: what others may be the echo of, then what the likely bug is known by."""
        found = [finding for finding in self.findings if finding.verdict == Verdict.FAIL]
        likely = {bug.check for bug in self.known_bugs}
        return sorted(found, key=lambda finding: (-finding.check.root, finding.check.name not in likely))

    @cached_property
    def known_bugs(self) -> list[KnownBug]:
        """Those that fail as this policy does."""
        return most_like(self.findings, self.calls)

    @property
    def sound(self) -> bool:
        return not self.failures

    @property
    def verdict(self) -> str:
        found = self.counts()
        if not self.sound:
            return "NOT SOUND"
        if found["not run"] == len(self.findings):
            return "nothing could be looked at"
        if found["not run"] > found["pass"] + found["declared"]:
            return "nothing failed, but most checks could not look"
        return (
            "sound"
            if len(self.findings) == len(CHECKS)
            else f"nothing failed in {len(self.findings)} of {len(CHECKS)} checks"
        )

    @property
    def remarks(self) -> list[str]:
        """Sentences that belong to the verdict, if any do, besides what is declared."""
        remarks = []
        if SEQUENCE not in self.calls:
            remarks.append("It has no form for sequences, so learning could not be compared with acting.")
        if not_needed := self._not_needed():
            remarks.append(
                f"Declared, and not needed: {', '.join(not_needed)}. It would hide such a bug, should one come."
            )
        if self.not_scored:
            remarks.append(f"Learning does not put out {', '.join(self.not_scored)}: not compared with acting.")
        return [*remarks, f"Note: {self.note}."] if self.note else remarks

    def _not_needed(self) -> list[str]:
        """What is declared and excused nothing, in an audit that looked at everything."""
        excused = [name for f in self.findings if f.verdict == Verdict.DECLARED for name in f.check.excused_by]
        return sorted(self.declared - set(excused)) if len(self.findings) == len(CHECKS) else []

    def counts(self) -> dict[str, int]:
        return {verdict.value: sum(f.verdict == verdict for f in self.findings) for verdict in Verdict}

    def to_json(self) -> dict[str, object]:
        return {
            "policy": self.name,
            "sound": self.sound,
            "verdict": self.verdict,
            "declared": sorted(self.declared),
            "seconds": round(self.seconds, 2),
            "calls": list(self.calls),
            "remarks": self.remarks,
            "counts": self.counts(),
            "known_bugs": [{"name": bug.name, "what": bug.what, "seen": bug.seen} for bug in self.known_bugs],
            "findings": [finding.to_json() for finding in self.findings],
        }


def audit(
    subject: Subject,
    checks: Iterable[str] | str | None = None,
    seed: int = 0,
    quick: bool = False,
    on_check: Callable[[str], None] | None = None,
    declared: Iterable[str] | str = (),
) -> Report:
    """Judge a subject. checks: names of those to run; all by default, or with `quick` those that matter most.

    declared: what it does on purpose, besides what it declares itself.
    """
    began = time.perf_counter()
    on_purpose = check_declared(frozenset(_names(subject.declared)) | frozenset(_names(declared)))
    # An audit before training must not change the run.
    with torch.random.fork_rng(devices=[]), left_as_it_was(subject), one_thread():
        examination, note = _opened(subject, seed, on_purpose)
        findings = []
        for check in chosen_checks(checks, quick):
            if on_check is not None:
                on_check(check.name)
            findings.append(run_check(check, examination))
        calls = tuple(examination.probe.calls)
    return Report(
        name=subject.name,
        findings=tuple(findings),
        declared=on_purpose,
        seconds=time.perf_counter() - began,
        calls=calls,
        note=note,
        not_scored=examination.probe.not_scored,
        maps=examination.maps,
    )


def _names(names: Iterable[str] | str) -> Iterable[str]:
    return [names] if isinstance(names, str) else names


def check_declared(names: frozenset[str]) -> frozenset[str]:
    """Refuses what is no deviation."""
    unknown = sorted(names - DEVIATIONS.keys())
    if unknown:
        raise SettingsError(f"{unknown[0]} is no deviation that can be declared. There are: {', '.join(DEVIATIONS)}.")
    return names


@contextmanager
def one_thread() -> Iterator[None]:
    """For a handful of slots, threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def chosen_checks(names: Iterable[str] | str | None = None, quick: bool = False) -> list[Check]:
    if names is None:
        return [check for check in CHECKS if check.quick or not quick]
    by_name = {check.name: check for check in CHECKS}
    wanted = list(dict.fromkeys(_names(names)))
    if not wanted:
        raise SettingsError("no check is named, so nothing would be looked at. `holdfast audit --checks` lists them.")
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        hint = did_you_mean(unknown[0], by_name)
        raise SettingsError(f"there is no check {unknown[0]}.{hint} `holdfast audit --checks` lists them.")
    return [by_name[name] for name in wanted]


def run_check(check: Check, examination: Examination) -> Finding:
    """One check. A subject that raises in the middle of it is at fault, and so is its finding."""
    began = time.perf_counter()
    subject, tally = examination.subject, Tally()
    try:
        check.run(examination, tally)
        found = judged(check, tally, examination.excuses(check))
    except NotOfferedError as reason:
        found = Judgement(Verdict.NOT_RUN, str(reason))
        if tally.broken:
            found = judged(check, tally, examination.excuses(check))
    except UnusableError as error:
        found = Judgement(Verdict.FAIL, str(error), broken_shares=RAISED)
    except (Exception, SystemExit) as error:
        if raised_by_the_auditor(error):
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise UnusableError(
                f"the auditor itself failed in {check.name}, which is no verdict about the policy; please report it: "
                f"{type(error).__name__}: {first_line(error)} ({Path(place.filename).name}:{place.lineno})"
            ) from error
        said = f"it raised {type(error).__name__}: {first_line(error)}{place_of(error)}"
        found = Judgement(Verdict.FAIL, said, broken_shares=RAISED)
    where = subject.where(_method(check, found.form)) if found.verdict == Verdict.FAIL else ""
    seconds = time.perf_counter() - began
    return Finding(check, found.verdict, found.evidence, where, seconds, found.broken_shares)


def _method(check: Check, form: str) -> str:
    """The subject's method to look at: of the call that failed, where a check looks at several of them."""
    return METHODS.get(form, check.look_at) if check.look_at in METHODS.values() else check.look_at


def _opened(subject: Subject, seed: int, declared: frozenset[str]) -> tuple[Examination, str]:
    """A first run of every form, and a policy that answers. What fails here cannot be audited at all."""
    try:
        examination = Examination(subject, seed, declared)
        with torch.no_grad():
            for B in (3, 5):
                examination.probe.check_state(subject.initial_state(B), B, "initial_state")
            examination.probe.check_forms_agree()
            examination.probe.check_precision()
        return examination, wake(examination.probe)
    except UnusableError:
        raise
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, HoldfastError) else f"{type(error).__name__}: "
        raise UnusableError(f"{subject.name} cannot be run: {kind}{first_line(error)}{place_of(error)}") from error
