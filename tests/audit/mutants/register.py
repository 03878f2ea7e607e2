"""The list of mutants. Each is a correct policy with one bug that a real project had or could easily have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from holdfast.audit.subject import Subject


@dataclass(frozen=True)
class Mutant:
    """A broken policy and the check that is there to catch it."""

    kind: Callable[..., Subject]  # takes a seed
    check: str
    seen: str = ""  # projects that had the bug
    needs: str = ""  # a check that runs only on policies that can have this bug
    same_as: str = ""  # the mutant with the same bug in another policy
    explained: str = ""  # words of the explanation shown first that name the cause

    @property
    def name(self) -> str:
        return self.kind.__name__

    @property
    def what(self) -> str:
        return (self.kind.__doc__ or "").strip()


Kind = TypeVar("Kind", bound=Callable[..., Subject])
MUTANTS: list[Mutant] = []


def caught_by(
    check: str, seen: str = "", needs: str = "", same_as: str = "", explained: str = ""
) -> Callable[[Kind], Kind]:
    def add(kind: Kind) -> Kind:
        MUTANTS.append(Mutant(kind, check, seen, needs, same_as, explained))
        return kind

    return add
