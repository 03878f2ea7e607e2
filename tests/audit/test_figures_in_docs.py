"""What the docs say about the auditor in numbers is about the checks and mutants there are."""

from pathlib import Path

from audit.mutants import MUTANTS
from holdfast.audit import CHECKS

ROOT = Path(__file__).parents[2]


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_every_row_about_other_peoples_policies_counts_every_check():
    rows = [line.split("|") for line in text("docs/audit-peers.md").splitlines() if line.startswith("| ")]
    counts = [[int(cell) for cell in row[2:6]] for row in rows if row[2].strip().isdigit()]
    assert len(counts) >= 10
    assert {sum(row) for row in counts} == {len(CHECKS)}, "make audit-peers ARGS=--write renews the page"


def test_checks_and_mutants_are_counted():
    assert f"{len(CHECKS)} checks" in text("README.md")
    assert f"{len(MUTANTS)} known bugs" in text("docs/audit.md")
    assert f"a sound policy and {len(MUTANTS)} broken ones" in text("ARCHITECTURE.md")
