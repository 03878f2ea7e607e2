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


def as_row(mutant: Mutant, report: Report) -> str:
    """Return the mutant's row of the table: its own check, and the other checks that it fails."""
    failed = [f.check.name for f in report.findings if f.verdict == Verdict.FAIL]
    others = " ".join(f"`{name}`" for name in failed if name != mutant.check)
    return f"| `{mutant.name}` | {mutant.what} | {mutant.seen} | `{mutant.check}` | {others} |"


def as_table(rows: Iterable[str]) -> str:
    return (
        "\n".join([HEADER, "|---|---|---|---|---|", *rows, "", f"{len(MUTANTS)} mutants, {len(CHECKS)} checks."]) + "\n"
    )


def as_entry(mutant: Mutant, report: Report) -> str:
    """Return the mutant's JSON line of the key: what it is, and by check and call the share of measurements that fail."""
    entry = {
        "name": mutant.name,
        "what": mutant.what,
        "seen": mutant.seen,
        "check": mutant.check,
        "needs": mutant.needs,
        "fails": {
            finding.check.name: {call: round(share, 3) for call, share in finding.failed_shares.items()}
            for finding in report.findings
            if finding.verdict == Verdict.FAIL
        },
    }
    return json.dumps(entry)


def as_key(entries: Iterable[str]) -> str:
    return "[\n" + ",\n".join(entries) + "\n]\n"


if __name__ == "__main__":
    reports = [(mutant, audit(mutant.kind())) for mutant in MUTANTS]
    KEY.write_text(as_key(as_entry(*pair) for pair in reports), encoding="utf-8")
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(HEADER)
    table = as_table(as_row(*pair) for pair in reports)
    PAGE.write_text(before + table, encoding="utf-8")
    print(table, end="")
