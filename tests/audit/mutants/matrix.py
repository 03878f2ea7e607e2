"""`make audit-matrix`: audit every mutant. Writes two tables of the docs and the key of known bugs.

docs/audit-matrix.md shows which checks each mutant fails, docs/audit-explanations.md what the report shows first. The
key, holdfast/audit/known_bugs.json, is how the auditor recognises these bugs in other policies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from audit.mutants import MUTANTS, Mutant
from holdfast.audit.audit import Report, audit
from holdfast.audit.checks import CHECKS
from holdfast.audit.findings import Verdict
from holdfast.audit.known_bugs import KEY, cause_of

DOCS = Path(__file__).parents[3] / "docs"
PAGE, EXPLANATIONS = DOCS / "audit-matrix.md", DOCS / "audit-explanations.md"
HEADER = "| mutant | what it does | seen in | its check | also fails |"
EXPLANATIONS_HEADER = "| mutant | what it does | shown first | known bug | cause named |"


def as_row(mutant: Mutant, report: Report) -> str:
    """Return the mutant's row of the table: its own check, and the other checks that it fails."""
    failed = [f.check.name for f in report.findings if f.verdict == Verdict.FAIL]
    others = " ".join(f"`{name}`" for name in failed if name != mutant.check)
    return f"| `{mutant.name}` | {mutant.what} | {mutant.seen} | `{mutant.check}` | {others} |"


def as_table(rows: Iterable[str]) -> str:
    return (
        "\n".join([HEADER, "|---|---|---|---|---|", *rows, "", f"{len(MUTANTS)} mutants, {len(CHECKS)} checks."]) + "\n"
    )


def explanation(report: Report) -> str:
    """Return what the report shows first."""
    shown = report.failures[0]
    return f"{shown.check.name}: {shown.evidence}. {shown.check.fix}"


def names_cause(mutant: Mutant, report: Report) -> bool:
    return re.search(mutant.explained, explanation(report)) is not None


def as_explanation_row(mutant: Mutant, report: Report) -> str:
    """Return the mutant's row of the table of explanations."""
    shown, known = explanation(report).replace("|", "\\|"), ", ".join(f"`{bug.name}`" for bug in report.known_bugs)
    verdict = "yes" if names_cause(mutant, report) else "NO"
    return f"| `{mutant.name}` | {mutant.what} | {shown} | {known} | {verdict} |"


def as_explanations(rows: Iterable[str]) -> str:
    return "\n".join([EXPLANATIONS_HEADER, "|---|---|---|---|---|", *rows]) + "\n"


def as_entry(mutant: Mutant, report: Report) -> str:
    """Return the mutant's JSON line of the key: what it is, and by check and call the share of measurements that fail."""
    entry = {
        "name": mutant.name,
        "what": mutant.what,
        "seen": mutant.seen,
        "check": mutant.check,
        "needs": mutant.needs,
        "same_as": mutant.same_as,
        "cause": cause_of(report.findings),
        "calls": list(report.calls),
        "not_run": [f.check.name for f in report.findings if f.verdict == Verdict.NOT_RUN],
        "fails": {
            finding.check.name: {call: round(share, 3) for call, share in finding.failed_shares.items()}
            for finding in report.findings
            if finding.verdict == Verdict.FAIL
        },
    }
    return json.dumps(entry)


def as_key(entries: Iterable[str]) -> str:
    return "[\n" + ",\n".join(entries) + "\n]\n"


def write_table(page: Path, header: str, table: str) -> None:
    """Replace the table of a page, from its header on."""
    before, _, _ = page.read_text(encoding="utf-8").partition(header)
    page.write_text(before + table, encoding="utf-8")


if __name__ == "__main__":
    reports = [(mutant, audit(mutant.kind())) for mutant in MUTANTS]
    KEY.write_text(as_key(as_entry(*pair) for pair in reports), encoding="utf-8")  # before known bugs are looked up
    write_table(PAGE, HEADER, as_table(as_row(*pair) for pair in reports))
    rows = [as_explanation_row(*pair) for pair in reports if pair[0].explained]
    write_table(EXPLANATIONS, EXPLANATIONS_HEADER, as_explanations(rows))
    print(
        f"{len(reports)} mutants, {len(rows)} explanations, {sum(row.endswith('| yes |') for row in rows)} name the cause"
    )
