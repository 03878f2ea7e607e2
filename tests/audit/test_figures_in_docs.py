"""The numbers of checks and mutants in the docs are current."""

from pathlib import Path

from audit.mutants import MUTANTS
from holdfast.audit import CHECKS

ROOT = Path(__file__).parents[2]


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_every_row_of_the_peers_page_counts_every_check():
    rows = [line.split("|") for line in text("docs/audit-peers.md").splitlines() if line.startswith("| ")]
    counts = [[int(cell) for cell in row[2:6]] for row in rows if row[2].strip().isdigit()]
    assert len(counts) >= 10
    assert {sum(row) for row in counts} == {len(CHECKS)}, "make audit-peers ARGS=--write renews the page"


def test_the_docs_count_checks_and_mutants():
    assert f"{len(CHECKS)} checks" in text("README.md")
    assert f"{len(MUTANTS)} known bugs" in text("docs/audit.md")
    assert f"correct policies and {len(MUTANTS)} broken ones" in text("ARCHITECTURE.md")
