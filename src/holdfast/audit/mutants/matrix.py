"""The matrix: which check catches which mutant. It is what makes the auditor's verdicts worth something.

Printed for docs/audit-matrix.md; with --key written to key.json, by which failures of other policies are read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

from holdfast.audit.audit import Report, audit
from holdfast.audit.checks import CHECKS
from holdfast.audit.findings import Verdict
from holdfast.audit.likeness import KEY
from holdfast.audit.mutants import MUTANTS, Mutant


def audited(mutants: Iterable[Mutant] = tuple(MUTANTS), seed: int = 0) -> dict[str, Report]:
    return {mutant.name: audit(mutant.kind(), seed=seed) for mutant in mutants}


def as_markdown(reports: dict[str, Report]) -> str:
    """A table with a row per mutant: its own check, and the others that see it too."""
    lines = ["| mutant | what it does | seen | its check | also fails |", "|---|---|---|---|---|"]
    for mutant in MUTANTS:
        failed = [f.check.name for f in reports[mutant.name].findings if f.verdict == Verdict.FAIL]
        others = [f"`{name}`" for name in failed if name != mutant.check]
        lines.append(f"| `{mutant.name}` | {mutant.what} | {mutant.seen} | `{mutant.check}` | {' '.join(others)} |")
    return "\n".join([*lines, "", f"{len(MUTANTS)} mutants, {len(CHECKS)} checks."]) + "\n"


def as_key(reports: dict[str, Report]) -> list[dict[str, Any]]:
    """What each mutant is, and how much of each check it fails in each form."""
    return [
        {
            "name": mutant.name,
            "what": mutant.what,
            "seen": mutant.seen,
            "check": mutant.check,
            "needs": mutant.needs,
            "fails": {
                finding.check.name: {form: round(share, 3) for form, share in finding.broken_shares.items()}
                for finding in reports[mutant.name].findings
                if finding.verdict == Verdict.FAIL
            },
        }
        for mutant in MUTANTS
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--key", action="store_true", help=f"also write {KEY.name}")
    options = parser.parse_args()
    found = audited()
    if options.key:
        KEY.write_text(json.dumps(as_key(found), indent=1) + "\n", encoding="utf-8")
    print(as_markdown(found), end="")
