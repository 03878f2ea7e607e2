"""The list of mutants. Each is the reference policy with one bug that a real project had or could easily have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from audit.mutants.reference_policy import ReferencePolicy


@dataclass(frozen=True)
class Mutant:
    """A broken policy and the check that is there to catch it."""

    kind: type[ReferencePolicy]
    check: str
    seen: str = ""  # projects that had the bug
    needs: str = ""  # a check that runs only on policies that can have this bug

    @property
    def name(self) -> str:
        return self.kind.__name__

    @property
    def what(self) -> str:
        return (self.kind.__doc__ or "").strip()


MUTANTS: list[Mutant] = []


def caught_by(check: str, seen: str = "", needs: str = "") -> Callable[[type[ReferencePolicy]], type[ReferencePolicy]]:
    def add(kind: type[ReferencePolicy]) -> type[ReferencePolicy]:
        MUTANTS.append(Mutant(kind, check, seen, needs))
        return kind

    return add
