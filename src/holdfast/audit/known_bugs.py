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
from holdfast.audit.script import CALLS

KEY = Path(__file__).with_suffix(".json")
MIN_OVERLAP = 0.8  # below this, no known bug is named
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
    pattern: Pattern

    @property
    def checks(self) -> set[str]:
        return {check for check, _ in self.pattern}


def matching_bugs(findings: Sequence[Finding], calls: Iterable[str]) -> list[KnownBug]:
    """Return the known bugs that fail like this policy, best match first.

    Only checks that ran and calls that the policy has are compared.
    """
    ran = {f.check.name for f in findings if f.verdict in (Verdict.PASS, Verdict.FAIL)}
    failed = {f.check.name for f in findings if f.verdict == Verdict.FAIL}
    found, missing = failure_pattern(findings), {*CALLS} - set(calls)
    scored = [
        (overlap(found, {at: share for at, share in bug.pattern.items() if at[0] in ran and at[1] not in missing}), bug)
        for bug in known_bugs()
        if bug.check in failed
        and bug.needs in ran | {""}
        and len(bug.checks & ran) >= min(2, len(bug.checks))  # a single check would match by chance
    ]
    best = max((score for score, _ in scored), default=0.0)
    close = sorted((entry for entry in scored if entry[0] >= best - TIE), key=lambda entry: -entry[0])
    return [bug for _, bug in close] if best >= MIN_OVERLAP and len(close) <= MAX_NAMED else []


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
            **{name: entry[name] for name in ("name", "what", "seen", "check", "needs")},
            pattern={(check, call): share for check, calls in entry["fails"].items() for call, share in calls.items()},
        )
        for entry in json.loads(KEY.read_text(encoding="utf-8"))
    )
