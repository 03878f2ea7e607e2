"""Format an audit report for the terminal: a table of verdicts, then the fix for each failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from holdfast.audit.known_bugs import describe_bugs
from holdfast.cli.github import annotation
from holdfast.cli.tables import render, text_table, wrapped

if TYPE_CHECKING:
    from holdfast.audit import Report
    from holdfast.audit.findings import Finding

COLOURS = {"pass": "green", "FAIL": "bold red", "declared": "yellow", "not run": "dim"}
NUM_EXPLAINED = 3  # one bug fails many checks; --all explains every failure


def report_text(report: Report, explain_all: bool = False) -> str:
    """Format a report. explain_all: explain every failure, not only the first `NUM_EXPLAINED`."""
    table = text_table("check", "verdict", "evidence")
    for finding in report.findings:
        table.add_row(finding.check.name, Text(finding.verdict, COLOURS[finding.verdict]), finding.evidence)
    explained = _explained(report, explain_all)
    more = len(report.failures) - len(explained)
    parts = [
        render(table),
        *(_advice(finding) for finding in explained),
        f"{more} more failed, possibly with the same cause; see --all." if more else "",
        wrapped(describe_bugs(report.known_bugs)),
        wrapped(_closing(report)),
    ]
    return "\n\n".join(part for part in parts if part)


def report_annotations(report: Report, explain_all: bool = False) -> str:
    """Format the failures that `report_text` explains as annotations for GitHub, one per line."""
    lines = [
        annotation(f"{report.name}: {f.evidence}.\n{f.check.fix}", f"holdfast audit: {f.check.name}", f.where)
        for f in _explained(report, explain_all)
    ]
    return "".join(f"{line}\n" for line in lines)


def _explained(report: Report, explain_all: bool) -> list[Finding]:
    return report.failures if explain_all else report.failures[:NUM_EXPLAINED]


def _advice(finding: Finding) -> str:
    check = finding.check
    parts = {"found": finding.evidence, "cost": check.cost, "fix": check.fix, "look at": finding.where}
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, text in parts.items():
        if text:
            table.add_row(f"  {name}", text)
    return f"{wrapped(f'{check.name}: {check.promise}')}\n{render(table)}"


def _closing(report: Report) -> str:
    counts = ", ".join(f"{number} {verdict}" for verdict, number in report.counts().items() if number)
    declared = [f"Declared: {', '.join(sorted(report.declared))}."] if report.declared else []
    return "\n".join(
        [f"{report.name}: {report.verdict}. {counts} in {report.seconds:.0f} s.", *declared, *report.remarks]
    )
