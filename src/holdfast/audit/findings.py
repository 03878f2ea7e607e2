"""What an audit finds: one finding per check, with its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from holdfast.audit.script import SCORING, SEQUENCE

if TYPE_CHECKING:
    from holdfast.audit.examination import Examination

SAME = 1e-5  # outputs further apart than this are different; the limit of replay parity
MOVED = 1e-7  # outputs closer than this are the same
NO_GRADIENT = 1e-7  # of the largest gradient; a true zero is exactly 0


LEARNING_ONLY = ("zero_start_states", "learning_without_resets")  # these excuse nothing in acting


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "FAIL"
    DECLARED = "declared"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Check:
    """One promise. `run` measures and enters into the tally whatever breaks it."""

    name: str
    promise: str
    cost: str  # what it does to training when it is broken
    mend: str
    look_at: str  # the subject's method whose code is concerned
    run: Callable[[Examination, Tally], None]
    excused_by: tuple[str, ...] = ()  # declared deviations under which a failure is on purpose
    quick: bool = False  # also part of the short audit before training
    root: int = 0  # broken, it makes others fail that are fine; the higher, the more of them


@dataclass
class Tally:
    """The measurements of one check."""

    largest: float | None = None
    smallest: float | None = None
    looked_at: Counter[str] = field(default_factory=Counter)  # how often, by form
    broken: list[tuple[str, float, str]] = field(default_factory=list)  # form, size, what happened
    remark: str = ""  # what could not be looked at, beside what was

    def still(self, form: str, size: float, said: str, limit: float = SAME) -> None:
        """This must not have moved."""
        self.looked_at[form] += 1
        self.largest = max(self.largest or 0.0, size)
        if not size <= limit:
            self.broken.append((form, size, said))

    def moves(self, form: str, size: float, said: str, least: float = MOVED) -> None:
        """This must have moved."""
        self.looked_at[form] += 1
        self.smallest = size if self.smallest is None else min(self.smallest, size)
        if not size > least:
            self.broken.append((form, size, said))

    def holds(self, form: str, is_so: bool, said: str) -> None:
        """A plain yes or no."""
        self.looked_at[form] += 1
        if not is_so:
            self.broken.append((form, 1.0, said))

    @property
    def measured(self) -> int:
        return self.looked_at.total()

    def figures(self) -> str:
        """For a check that passed."""
        parts = []
        if self.largest is not None:
            parts.append(f"nothing moved by more than {self.largest:.1e}" if self.largest else "nothing moved")
        if self.smallest is not None:
            parts.append(f"what should move moved by {self.smallest:.1e} or more")
        return f"{'; '.join(parts) or 'held'} ({self.measured} looked at){self.remark and '; ' + self.remark}"


@dataclass(frozen=True)
class Finding:
    check: Check
    verdict: Verdict
    evidence: str
    where: str = ""
    seconds: float = 0.0
    broken_shares: Mapping[str, float] = field(default_factory=dict)  # by form, of what was looked at

    def to_json(self) -> dict[str, str | float]:
        return {
            "check": self.check.name,
            "verdict": self.verdict.value,
            "promise": self.check.promise,
            "evidence": self.evidence,
            "cost": self.check.cost,
            "mend": self.check.mend,
            "where": self.where,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Judgement:
    """What was measured, judged. form: the one that the evidence is from."""

    verdict: Verdict
    evidence: str
    form: str = ""
    broken_shares: Mapping[str, float] = field(default_factory=dict)


def judged(check: Check, tally: Tally, declared: frozenset[str]) -> Judgement:
    if not tally.measured:
        return Judgement(Verdict.NOT_RUN, "there was nothing to measure")
    if not tally.broken:
        return Judgement(Verdict.PASS, tally.figures())
    not_meant = [entry for entry in tally.broken if not _excused(check, entry[0], declared)]
    form, _, said = max(not_meant or tally.broken, key=lambda entry: entry[1])
    if not not_meant:
        return Judgement(Verdict.DECLARED, said, form)
    more = len(not_meant) - 1
    shares = {form: n / tally.looked_at[form] for form, n in Counter(form for form, _, _ in not_meant).items()}
    return Judgement(Verdict.FAIL, said + (f" (and {more} more)" if more else ""), form, shares)


def _excused(check: Check, form: str, declared: frozenset[str]) -> bool:
    return any(name in declared and excuses_form(name, form) for name in check.excused_by)


def excuses_form(deviation: str, form: str) -> bool:
    """Deviations of learning excuse what learning runs only."""
    return form in (SEQUENCE, SCORING) or deviation not in LEARNING_ONLY
