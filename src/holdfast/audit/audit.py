"""Run the checks on a subject and collect their findings in a report."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch

from holdfast.audit.checks import CHECKS
from holdfast.audit.context import Context
from holdfast.audit.dependence import DependencyMap
from holdfast.audit.diagnosis import diagnose
from holdfast.audit.findings import Check, Finding, Tally, Verdict, judge
from holdfast.audit.known_bugs import KnownBug, matching_bugs
from holdfast.audit.script import CALLS, SEQUENCE
from holdfast.audit.sensitivity import raise_sensitivity, restored_afterwards
from holdfast.audit.subject import (
    DEVIATIONS,
    NotANumberError,
    NotOfferedError,
    PolicyRaisedError,
    Subject,
    UnusableError,
    raised_by_auditor,
)
from holdfast.config.nearest import did_you_mean
from holdfast.errors import HoldfastError, SettingsError, first_line, place_of, printable
from holdfast.threads import num_threads_kept


@dataclass(frozen=True)
class Report:
    """The result of an audit."""

    name: str
    findings: tuple[Finding, ...]
    declared: frozenset[str]
    seconds: float
    calls: tuple[str, ...] = ()  # the methods that the subject has
    note: str = ""  # how weights were scaled for the audit
    not_scored: tuple[str, ...] = ()  # outputs of step that sequence does not return
    maps: dict[tuple[str, str], DependencyMap] = field(repr=False, default_factory=dict)
    flag_maps: list[DependencyMap] = field(repr=False, default_factory=list)

    @property
    def failures(self) -> list[Finding]:
        """Failed checks: likely root causes first, then those with a known cause, then those of matching known bugs."""
        found = [finding for finding in self.findings if finding.verdict == Verdict.FAIL]
        likely = {bug.check for bug in self.known_bugs}
        return sorted(found, key=lambda f: (f.check.root < 2, not f.cause, f.check.name not in likely, -f.check.root))

    @cached_property
    def known_bugs(self) -> list[KnownBug]:
        """Known bugs that fail the same checks as this policy."""
        return matching_bugs(self.findings, self.calls)

    @property
    def sound(self) -> bool:
        return all(finding.verdict != Verdict.FAIL for finding in self.findings)

    @property
    def verdict(self) -> str:
        found, total = self.counts(), len(self.findings)
        if not self.sound:
            return "NOT SOUND"
        if found["not run"] == total:
            return "no check could run"
        if found["not run"] > found["pass"] + found["declared"]:
            return "nothing failed, but most checks could not run"
        return "sound" if total == len(CHECKS) else f"nothing failed in {total} of {len(CHECKS)} checks"

    @property
    def remarks(self) -> list[str]:
        """Sentences that qualify the verdict."""
        remarks = []
        if SEQUENCE not in self.calls:
            remarks.append("There is no sequence(), so learning could not be compared with acting.")
        used = {name for f in self.findings if f.verdict == Verdict.DECLARED for name in f.check.excused_by}
        unneeded = sorted(self.declared - used)
        if unneeded and len(self.findings) == len(CHECKS):
            remarks.append(f"Declared but not needed: {', '.join(unneeded)}. Remove it: it would hide a future bug.")
        if self.not_scored:
            remarks.append(f"Not compared with acting (sequence does not return it): {', '.join(self.not_scored)}.")
        return [*remarks, f"Note: {self.note}."] if self.note else remarks

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
    flag_maps: bool = False,
) -> Report:
    """Audit a subject. checks: names of those to run (all by default, the most important ones with `quick`).

    declared: intended deviations, in addition to those that the subject declares itself.
    flag_maps: also measure which output answers to which flag, for the report's page.
    """
    began = time.perf_counter()
    on_purpose = validate_declared(frozenset(_names(subject.declared)) | frozenset(_names(declared)))
    # An audit before training must not change the run.
    # More threads are slower for a handful of slots.
    with torch.random.fork_rng(devices=[]), restored_afterwards(subject), num_threads_kept(1):
        context, note = _prepare(subject, seed, on_purpose)
        findings = []
        for check in select_checks(checks, quick):
            if on_check is not None:
                on_check(check.name)
            findings.append(run_check(check, context))
        findings = diagnose(context, findings)
        calls = tuple(context.calls)
        if flag_maps:
            context.measure_flags()
    seconds = time.perf_counter() - began
    return Report(
        subject.name,
        tuple(findings),
        on_purpose,
        seconds,
        calls,
        note,
        context.not_scored,
        context.maps,
        context.flag_maps,
    )


def _names(names: Iterable[str] | str) -> Iterable[str]:
    return [names] if isinstance(names, str) else names


def validate_declared(names: frozenset[str]) -> frozenset[str]:
    """Refuse unknown deviations."""
    unknown = sorted(names - DEVIATIONS.keys())
    if unknown:
        raise SettingsError(f"unknown deviation {printable(unknown[0])}.\nChoose from: {', '.join(DEVIATIONS)}.")
    return names


def select_checks(names: Iterable[str] | str | None = None, quick: bool = False) -> list[Check]:
    """Return the checks with these names. Without names, return all checks, or the `quick` ones."""
    if names is None:
        return [check for check in CHECKS if check.quick or not quick]
    by_name = {check.name: check for check in CHECKS}
    wanted = list(dict.fromkeys(_names(names)))
    if not wanted:
        raise SettingsError("no checks given. `holdfast audit --checks` lists them.")
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        hint = did_you_mean(unknown[0], by_name)
        raise SettingsError(f"there is no check {printable(unknown[0])}.{hint} `holdfast audit --checks` lists them.")
    return [by_name[name] for name in wanted]


def run_check(check: Check, context: Context) -> Finding:
    """Run one check. An error that the policy raises is a failure of the check."""
    began = time.perf_counter()
    tally, context.running = Tally(), ""
    try:
        with torch.no_grad():  # a check that needs gradients enables them
            for need in check.needs:
                context.require(need)
            check.run(context, tally)
        finding = judge(check, tally, context.excuses(check))
    except NotOfferedError as reason:
        finding = Finding(check, Verdict.NOT_RUN, str(reason))
        if tally.violations:
            finding = judge(check, tally, context.excuses(check))
    except (Exception, SystemExit) as error:
        if isinstance(error, NotANumberError) and context.nan_found_by:
            return Finding(check, Verdict.NOT_RUN, f"the policy returned NaN, as {context.nan_found_by} reports")
        context.nan_found_by = check.name if isinstance(error, NotANumberError) else context.nan_found_by
        if isinstance(error, UnusableError):
            evidence, kind = str(error).rstrip("."), type(error)
        elif raised_by_auditor(error):
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise UnusableError(
                f"bug in the auditor, not in the policy: {check.name} raised {type(error).__name__}: {first_line(error)} "
                f"({Path(place.filename).name}:{place.lineno}). Please report it."
            ) from error
        else:
            during = f", in {context.running}" if context.running else ""
            evidence = f"the policy raised {type(error).__name__}: {first_line(error)}{place_of(error)}{during}"
            kind = PolicyRaisedError
        shown = replace(check, cost=kind.cost, fix=kind.advice)
        shares = {"": 1.0}  # no single call failed
        finding = Finding(shown, Verdict.FAIL, evidence, failed_shares=shares, cause=kind.__name__)
    # Point at the call that failed, unless the check is about another method.
    method = finding.call if finding.call in CALLS and check.look_at in CALLS else check.look_at
    where = context.subject.where(method) if finding.verdict == Verdict.FAIL else ""
    return replace(finding, where=where, seconds=time.perf_counter() - began)


def _prepare(subject: Subject, seed: int, declared: frozenset[str]) -> tuple[Context, str]:
    """Run step, sequence and act once, and scale weights if needed. A policy that fails here cannot be audited."""
    try:
        context = Context(subject, seed, declared)
        with torch.no_grad():
            for B in (3, 5):
                context.check_state(subject.initial_state(B), B, "initial_state")
            context.check_names_agree()
            context.check_precision()
        return context, raise_sensitivity(context)
    except UnusableError:
        raise
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, HoldfastError) else f"{type(error).__name__}: "
        raise UnusableError(f"{subject.name} cannot be run: {kind}{first_line(error)}{place_of(error)}") from error
