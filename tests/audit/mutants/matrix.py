"""`make audit-matrix`: audit every mutant. Writes the table of docs/audit-matrix.md and the key of known bugs.

The key, holdfast/audit/known_bugs.json, is how the auditor recognises these bugs in other policies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from audit.mutants import MUTANTS, Mutant
from holdfast.audit.audit import Report, audit
from holdfast.audit.checks import CHECKS
from holdfast.audit.findings import Verdict
from holdfast.audit.known_bugs import KEY

PAGE = Path(__file__).parents[3] / "docs" / "audit-matrix.md"
HEADER = "| mutant | what it does | seen in | its check | also fails |"


def audit_mutants(mutants: Iterable[Mutant] = tuple(MUTANTS), seed: int = 0) -> dict[str, Report]:
    return {mutant.name: audit(mutant.kind(), seed=seed) for mutant in mutants}


def as_markdown(reports: dict[str, Report]) -> str:
    """Return a table with a row per mutant: its own check, and the other checks that it fails."""
    lines = [HEADER, "|---|---|---|---|---|"]
    for mutant in MUTANTS:
        failed = [f.check.name for f in reports[mutant.name].findings if f.verdict == Verdict.FAIL]
        others = [f"`{name}`" for name in failed if name != mutant.check]
        lines.append(f"| `{mutant.name}` | {mutant.what} | {mutant.seen} | `{mutant.check}` | {' '.join(others)} |")
    return "\n".join([*lines, "", f"{len(MUTANTS)} mutants, {len(CHECKS)} checks."]) + "\n"


def as_key(reports: dict[str, Report]) -> str:
    """Return JSON with a line per mutant: what it is, and by check and call the share of measurements that fail."""
    entries = [
        {
            "name": mutant.name,
            "what": mutant.what,
            "seen": mutant.seen,
            "check": mutant.check,
            "needs": mutant.needs,
            "fails": {
                finding.check.name: {call: round(share, 3) for call, share in finding.failed_shares.items()}
                for finding in reports[mutant.name].findings
                if finding.verdict == Verdict.FAIL
            },
        }
        for mutant in MUTANTS
    ]
    return "[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n"


if __name__ == "__main__":
    found = audit_mutants()
    KEY.write_text(as_key(found), encoding="utf-8")
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(HEADER)
    PAGE.write_text(before + as_markdown(found), encoding="utf-8")
    print(as_markdown(found), end="")
