"""Format tables as text: as wide as the terminal; without a terminal, one line per row."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

from rich.console import Console
from rich.table import Table

PIPE_WIDTH = 1000


def row_table(rows: list[dict[str, Any]]) -> str:
    """Format rows as a table with one column per key. All rows must have the same keys."""
    table = text_table(*rows[0])
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    return render(table)


def text_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i == 0, overflow="fold")
    return table


def wrapped(text: str) -> str:
    """Wrap lines at the width of the terminal, with continuation lines indented."""
    width = _console().width

    def fill(line: str) -> str:
        margin = " " * (len(line) - len(line.lstrip()))
        return textwrap.fill(line, width, subsequent_indent=f"{margin}  ", break_on_hyphens=False)

    return "\n".join(fill(line) for line in text.split("\n"))


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, markup=False, highlight=False)


def render(table: Table) -> str:
    console = _console()
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().split("\n"))
