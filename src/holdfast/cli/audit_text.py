"""An audit in the terminal: a table of verdicts, then what to do about each failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from holdfast.cli.tables import render, text_table

if TYPE_CHECKING:
    from holdfast.audit import Report
    from holdfast.audit.findings import Finding

COLOURS = {"pass": "green", "FAIL": "bold red", "declared": "yellow", "not run": "dim"}


def report_text(report: Report) -> str:
    table = text_table("check", "verdict", "evidence")
    for finding in report.findings:
        table.add_row(finding.check.name, Text(finding.verdict, COLOURS[finding.verdict]), finding.evidence)
    parts = [render(table), *(_advice(finding) for finding in report.failures), _closing(report)]
    return "\n\n".join(parts)


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
