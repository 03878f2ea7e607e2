"""Mutants are sound policies with one thing broken, as a real project once had it or easily could."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.audit.mutants.sound import Sound


@dataclass(frozen=True)
class Mutant:
    """A broken policy, the check that is there to catch it, and where such a bug was seen."""

    kind: type[Sound]
    check: str
    seen: str = ""
    needs: str = ""  # a check that can only run on policies that could have this bug

    @property
    def name(self) -> str:
        return self.kind.__name__

    @property
    def what(self) -> str:
        return (self.kind.__doc__ or "").strip()


MUTANTS: list[Mutant] = []


def caught_by(check: str, seen: str = "", needs: str = "") -> Callable[[type[Sound]], type[Sound]]:
    def add(kind: type[Sound]) -> type[Sound]:
        MUTANTS.append(Mutant(kind, check, seen, needs))
        return kind

    return add
