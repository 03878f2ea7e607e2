"""Name the known bugs that fail the same checks as a policy.

One bug fails many checks. known_bugs.json lists deliberately broken policies with the checks that each fails. A policy
that fails the same checks probably has the same bug. `make audit-matrix` writes the file from tests/audit/mutants.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast.audit.findings import Finding, Verdict

KEY = Path(__file__).with_suffix(".json")
MIN_OVERLAP = 0.8  # below this, no known bug is named
MIN_OVERLAP_SAME_CAUSE = 0.5  # lower, because the diagnosed cause agrees
TIE = 0.05  # bugs this close to the best match are named too
MAX_NAMED = 4  # more than this many matches are no help, so none is named

Pattern = Mapping[tuple[str, str], float]  # by (check, call): the share of measurements that failed


@dataclass(frozen=True)
class KnownBug:
    """A bug of a deliberately broken policy, with the checks that it fails."""

    name: str
    what: str
    seen: str  # projects that had it
    check: str  # the check that has to catch it
    needs: str  # a check that runs only on policies that can have this bug
    same_as: str  # the known bug that this is a variant of, in another kind of policy
    cause: str  # what the diagnosis finds
    calls: frozenset[str]  # the calls that the broken policy has
    not_run: frozenset[str]  # checks that could not run on it
    pattern: Pattern


def matching_bugs(findings: Sequence[Finding], calls: Iterable[str]) -> list[KnownBug]:
    """Return the known bugs that fail like this policy, best match first. A variant is reported as its original (`same_as`)."""
    failed, cause = {f.check.name for f in findings if f.verdict == Verdict.FAIL}, cause_of(findings)
    not_run = {f.check.name for f in findings if f.verdict not in (Verdict.PASS, Verdict.FAIL)}
    ran, found = {f.check.name for f in findings} - not_run, failure_pattern(findings)
    scored = [
        (similarity(found, bug, ran, {*calls}), bug)
        for bug in known_bugs()
        if bug.check in failed and bug.needs in ran | {""} and bug.cause == cause
    ]
    best = max((score for score, _ in scored), default=0.0)
    close = sorted((entry for entry in scored if entry[0] >= best - TIE), key=lambda entry: -entry[0])
    by_name = {bug.name: bug for bug in known_bugs()}
    named = [*dict.fromkeys(bug.same_as or bug.name for _, bug in close)]
    alike = best >= (MIN_OVERLAP_SAME_CAUSE if cause else MIN_OVERLAP) and len(named) <= MAX_NAMED
    return [by_name[name] for name in named] if alike else []


def similarity(found: Pattern, bug: KnownBug, ran: set[str], calls: set[str]) -> float:
    """Return 1 if a policy fails like this bug, 0 if they share no failure.

    Patterns are compared where both policies were measured. What was measured in only one of them counts against it.
    """
    checks = {check for check, _ in bug.pattern}
    if len(checks & ran) < min(2, len(checks)):
        return 0.0  # a single check would match by chance
    common = {*bug.calls & calls, ""}
    mine, its = (
        {at: share for at, share in pattern.items() if at[0] in ran - bug.not_run and at[1] in common}
        for pattern in (found, bug.pattern)
    )
    covered = len(mine) / len(found) * (len(its) / len(bug.pattern)) ** 0.5 if found else 0.0
    return overlap(mine, its) * covered


def cause_of(findings: Iterable[Finding]) -> str:
    """Return the cause that the diagnosis found, or ''."""
    return next((f.cause for f in findings if f.cause), "")


def describe_bugs(bugs: Iterable[KnownBug]) -> str:
    """Return a paragraph that lists these bugs; '' if there are none."""
    lines = [f"  {bug.name}: {bug.what}" + (f" Seen in {bug.seen}." if bug.seen else "") for bug in bugs]
    return "\n".join(["Known bugs that fail like this:", *lines]) if lines else ""


def failure_pattern(findings: Iterable[Finding]) -> Pattern:
    return {
        (finding.check.name, call): share
        for finding in findings
        if finding.verdict == Verdict.FAIL
        for call, share in finding.failed_shares.items()
    }


def overlap(a: Pattern, b: Pattern) -> float:
    """Return 1 if two patterns are equal, 0 if they have nothing in common."""
    places = a.keys() | b.keys()
    either = sum(max(a.get(at, 0.0), b.get(at, 0.0)) for at in places)
    return sum(min(a.get(at, 0.0), b.get(at, 0.0)) for at in places) / either if either else 0.0


@cache
def known_bugs() -> tuple[KnownBug, ...]:
    """Read the bugs that ship with Holdfast."""
    return tuple(
        KnownBug(
            **{name: entry[name] for name in ("name", "what", "seen", "check", "needs", "same_as", "cause")},
            calls=frozenset(entry["calls"]),
            not_run=frozenset(entry["not_run"]),
            pattern={(check, call): share for check, calls in entry["fails"].items() for call, share in calls.items()},
        )
        for entry in json.loads(KEY.read_text(encoding="utf-8"))
    )
