"""Data types of an audit: a check, the tally of its measurements, and its finding."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from holdfast.audit.script import SCORE, SEQUENCE

if TYPE_CHECKING:
    from holdfast.audit.context import Context

SAME = 1e-5  # larger differences count as changes; also the limit of replay parity
MOVED = 1e-7  # smaller differences count as no change
NO_GRADIENT = 1e-7  # smaller gradients, relative to the largest one, count as zero
LEARNING_ONLY = ("zero_start_states", "learning_without_resets")  # do not excuse failures in acting
Run = Callable[["Context", "Tally"], None]


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "FAIL"
    DECLARED = "declared"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Check:
    """A check: one promise about a policy, and the function `run` that measures it."""

    name: str
    promise: str
    cost: str  # what a violation does to training
    fix: str
    look_at: str  # the method of the subject to look at if the check fails
    run: Run
    needs: tuple[str, ...] = ()  # what the subject must have: a state, or forms such as act
    excused_by: tuple[str, ...] = ()  # deviations that explain a failure if they are declared
    quick: bool = False  # also part of the short audit before training
    root: int = 0  # how likely a failure here makes other checks fail (0 to 2); higher is reported first


class Register(list[Check]):
    """Decorator that collects the checks of a module. Their docstrings give the promise, then "Cost:" and "Fix:"."""

    def __call__(self, *, look_at: str = "step", **options: Any) -> Callable[[Run], Run]:
        def add(run: Run) -> Run:
            promise, _, advice = inspect.cleandoc(run.__doc__ or "").partition("\n\nCost: ")
            cost, _, fix = " ".join(advice.split()).partition(" Fix: ")
            self.append(Check(run.__name__, promise, cost, fix, look_at, run, **options))
            return run

        return add


@dataclass
class Tally:
    """The measurements of one check. Every violation is kept with its call, its size and a message."""

    largest: float | None = None
    smallest: float | None = None
    measured: Counter[str] = field(default_factory=Counter)  # number of measurements by call
    violations: list[tuple[str, float, str]] = field(default_factory=list)
    remark: str = ""  # what could not be measured

    def expect_unchanged(self, call: str, size: float, message: str, limit: float = SAME) -> None:
        """Record a difference that must not be larger than `limit`."""
        self.largest = max(self.largest or 0.0, size)
        self._record(call, size <= limit, size, message)

    def expect_change(self, call: str, size: float, message: str) -> None:
        """Record a difference that must not be zero."""
        self.smallest = size if self.smallest is None else min(self.smallest, size)
        self._record(call, size > MOVED, size, message)

    def expect(self, call: str, condition: bool, message: str) -> None:
        """Record a condition that must be true."""
        self._record(call, condition, 1.0, message)

    def _record(self, call: str, passed: bool, size: float, message: str) -> None:
        self.measured[call] += 1
        if not passed:
            self.violations.append((call, size, f"{call}: {message}"))

    def summary(self) -> str:
        """Describe the measurements of a check that passed."""
        parts = []
        if self.largest is not None:
            parts.append(f"largest difference {self.largest:.1e}" if self.largest else "no difference")
        if self.smallest is not None:
            parts.append(f"smallest expected change {self.smallest:.1e}")
        return f"{'; '.join(parts) or 'ok'} ({self.measured.total()} measured){self.remark and '; ' + self.remark}"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: Check
    verdict: Verdict
    evidence: str
    call: str = ""  # the call that the evidence is about
    failed_shares: Mapping[str, float] = field(default_factory=dict)  # by call: the share of measurements that failed
    where: str = ""
    cause: str = ""  # what the diagnosis found; the evidence and the fix of the check are then about it
    seconds: float = 0.0

    def to_json(self) -> dict[str, str | float]:
        return {
            "check": self.check.name,
            "verdict": self.verdict.value,
            "promise": self.check.promise,
            "evidence": self.evidence,
            "cost": self.check.cost,
            "fix": self.check.fix,
            "where": self.where,
            "seconds": round(self.seconds, 3),
        }


def judge(check: Check, tally: Tally, declared: frozenset[str]) -> Finding:
    """Turn the measurements of a check into a verdict."""
    if not tally.measured:
        return Finding(check, Verdict.NOT_RUN, "there was nothing to measure")
    if not tally.violations:
        return Finding(check, Verdict.PASS, tally.summary())
    excuses = declared.intersection(check.excused_by)
    unexcused = [entry for entry in tally.violations if not any(excuses_call(name, entry[0]) for name in excuses)]
    call, _, message = max(unexcused or tally.violations, key=lambda entry: entry[1])
    if not unexcused:
        return Finding(check, Verdict.DECLARED, message, call)
    more = len(unexcused) - 1
    shares = {call: n / tally.measured[call] for call, n in Counter(call for call, _, _ in unexcused).items()}
    return Finding(check, Verdict.FAIL, message + (f" (and {more} more)" if more else ""), call, shares)


def excuses_call(deviation: str, call: str) -> bool:
    """Whether a deviation applies to this call: those about learning do not apply to acting."""
    return call in (SEQUENCE, SCORE) or deviation not in LEARNING_ONLY
