"""An audit in the terminal: a table of verdicts, then what to do about each failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from holdfast.audit.sound import likely_bugs
from holdfast.cli.tables import render, text_table

if TYPE_CHECKING:
    from holdfast.audit import Report
    from holdfast.audit.findings import Finding

COLOURS = {"pass": "green", "FAIL": "bold red", "declared": "yellow", "not run": "dim"}


EXPLAINED = 3  # one bug fails many checks; the rest is in the table, and with --all in full


def report_text(report: Report, explain_all: bool = False) -> str:
    """explain_all: what to do about every failure, not only about the most telling."""
    table = text_table("check", "verdict", "evidence")
    for finding in report.findings:
        table.add_row(finding.check.name, Text(finding.verdict, COLOURS[finding.verdict]), finding.evidence)
    failures = report.failures
    explained = failures if explain_all else failures[:EXPLAINED]
    parts = [render(table), *(_advice(finding) for finding in explained)]
    if len(failures) > len(explained):
        parts.append(
            f"{len(failures) - len(explained)} more failed, maybe of the same cause; --all explains them, too."
        )
    if report.most_like:
        parts.append(likely_bugs(report))
    return "\n\n".join([*parts, _closing(report)])


def _advice(finding: Finding) -> str:
    check = finding.check
    lines = [
        f"{check.name}: {check.promise}",
        f"  found    {finding.evidence}",
        f"  costs    {check.cost}",
        f"  to mend  {check.mend}",
    ]
    return "\n".join([*lines, f"  look at  {finding.where}"] if finding.where else lines)


def _closing(report: Report) -> str:
    found = report.counts()
    counts = ", ".join(f"{number} {verdict}" for verdict, number in found.items() if number)
    verdict = "sound" if report.sound else "NOT SOUND"
    if report.sound and found["not run"] > found["pass"]:
        verdict = "nothing failed, but most checks could not look"
    on_purpose = f" Declared: {', '.join(sorted(report.declared))}." if report.declared else ""
    if "sequence" not in report.forms:
        on_purpose += " It was not seen learning: it has no form for sequences."
    note = f"\nNote: {report.note}." if report.note else ""
    return f"{report.name}: {verdict}. {counts} in {report.seconds:.0f} s.{on_purpose}{note}"
