"""Cause: what an experiment found to be behind failed checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.audit.script import ACT, SEQUENCE, STEP

# What users call the three ways to run a policy.
FORM_NAMES = {STEP: "acting step by step", SEQUENCE: "learning over sequences", ACT: "acting with stored memory"}


class Cause(NamedTuple):
    what: str  # the same words for the same kind of bug, because known bugs are found by them
    fix: str
    forms: tuple[str, ...] = ()  # the calls that have it
    detail: str = ""  # what was found in this policy

    def describe(self) -> str:
        where = f" (in {', '.join(FORM_NAMES[form] for form in self.forms)})" if self.forms else ""
        return f"{self.what}{self.detail and ': ' + self.detail}{where}"


def by_form(forms: Iterable[str], find: Callable[[str], Cause | None]) -> Cause | None:
    """Return the cause of the first form that has one, with all forms that share it."""
    found = {form: cause for form in forms if (cause := find(form))}
    return next((it._replace(forms=tuple(form for form in found if found[form] == it)) for it in found.values()), None)
