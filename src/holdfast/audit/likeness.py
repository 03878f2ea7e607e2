"""Which known bug a policy's failures are most like.

One bug fails many checks. The mutants are bugs whose failures are known, so they serve as a key: whichever fails the same
checks, in the same forms and to the same extent, is the first thing to look for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast.audit.findings import Finding, Verdict
from holdfast.audit.script import METHODS

KEY = Path(__file__).parent / "mutants" / "key.json"  # `python -m holdfast.audit.mutants.matrix --key` writes it
ALIKE = 0.8  # below this it is a bug that the key does not have
AS_GOOD = 0.05  # what is this close to the best is named, too
MOST = 4  # if more are as good as the best, naming them would tell nothing

Pattern = Mapping[tuple[str, str], float]  # by check and form: the share of what was looked at that broke


@dataclass(frozen=True)
class KnownBug:
    name: str
    what: str
    seen: str  # the projects that had it
    check: str  # the check that is there for it
    needs: str  # a check that can only run on policies that could have it
    pattern: Pattern

    @property
    def checks(self) -> set[str]:
        return {check for check, _ in self.pattern}


def most_like(findings: Iterable[Finding], calls: Iterable[str]) -> list[KnownBug]:
    """The known bugs that fail as this policy does, the best match first; none if it fails like none of them.

    Compared is what could be seen: checks that ran, and the calls that the policy has.
    """
    judged = [finding for finding in findings if finding.verdict in (Verdict.PASS, Verdict.FAIL)]
    ran, failed = {f.check.name for f in judged}, {f.check.name for f in judged if f.verdict == Verdict.FAIL}
    found, lacking = pattern_of(judged), {*METHODS} - set(calls)
    alike = [
        (overlap(found, {at: share for at, share in bug.pattern.items() if at[0] in ran and at[1] not in lacking}), bug)
        for bug in known_bugs()
        if bug.check in failed
        and bug.needs in ran | {""}
        and len(bug.checks & ran) >= min(2, len(bug.checks))  # what little is left would match by chance
    ]
    best = max((likeness for likeness, _ in alike), default=0.0)
    close = sorted((entry for entry in alike if entry[0] >= best - AS_GOOD), key=lambda entry: -entry[0])
    return [bug for _, bug in close] if best >= ALIKE and len(close) <= MOST else []


def in_words(bugs: Iterable[KnownBug]) -> str:
    """What to look for first; '' if nothing is known to fail so."""
    lines = [f"  {bug.name}: {bug.what}" + (f" Seen in {bug.seen}." if bug.seen else "") for bug in bugs]
    return "\n".join(["Known bugs that fail like this:", *lines]) if lines else ""


def pattern_of(findings: Iterable[Finding]) -> Pattern:
    return {
        (finding.check.name, form): share
        for finding in findings
        if finding.verdict == Verdict.FAIL
        for form, share in finding.broken_shares.items()
    }


def overlap(a: Pattern, b: Pattern) -> float:
    """1 if they are the same, 0 if they have nothing in common."""
    places = a.keys() | b.keys()
    either = sum(max(a.get(at, 0.0), b.get(at, 0.0)) for at in places)
    return sum(min(a.get(at, 0.0), b.get(at, 0.0)) for at in places) / either if either else 0.0


@cache
def known_bugs() -> tuple[KnownBug, ...]:
    return tuple(
        KnownBug(
            **{name: entry[name] for name in ("name", "what", "seen", "check", "needs")},
            pattern={(check, form): share for check, forms in entry["fails"].items() for form, share in forms.items()},
        )
        for entry in json.loads(KEY.read_text(encoding="utf-8"))
    )
