"""What is said of other people's policies is about the checks there are."""

from pathlib import Path

from holdfast.audit import CHECKS

PAGE = Path(__file__).parents[2] / "docs" / "audit-peers.md"


def test_every_row_counts_every_check():
    rows = [line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    counts = [[int(cell) for cell in row[2:6]] for row in rows if row[2].strip().isdigit()]
    assert len(counts) >= 10
    assert {sum(row) for row in counts} == {len(CHECKS)}, "make audit-peers ARGS=--write renews the page"
