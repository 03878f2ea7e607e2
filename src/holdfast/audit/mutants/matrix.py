"""The matrix: which check catches which mutant. It is what makes the auditor's verdicts worth something."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.audit.audit import audit
from holdfast.audit.checks import CHECKS
from holdfast.audit.findings import Verdict
from holdfast.audit.mutants import MUTANTS, Mutant


def caught(mutants: Iterable[Mutant] = tuple(MUTANTS), seed: int = 0) -> dict[str, list[str]]:
    """For each mutant, the checks that fail on it, in their usual order."""
    found = {}
    for mutant in mutants:
        report = audit(mutant.kind(), seed=seed)
        found[mutant.name] = [f.check.name for f in report.findings if f.verdict == Verdict.FAIL]
    return found


def as_markdown(found: dict[str, list[str]]) -> str:
    """A table with a row per mutant: its own check, and the others that see it too."""
    lines = ["| mutant | what it does | seen | its check | also fails |", "|---|---|---|---|---|"]
    for mutant in MUTANTS:
        others = [f"`{name}`" for name in found[mutant.name] if name != mutant.check]
        lines.append(f"| `{mutant.name}` | {mutant.what} | {mutant.seen} | `{mutant.check}` | {' '.join(others)} |")
    return "\n".join([*lines, "", f"{len(MUTANTS)} mutants, {len(CHECKS)} checks."]) + "\n"


if __name__ == "__main__":
    print(as_markdown(caught()), end="")
