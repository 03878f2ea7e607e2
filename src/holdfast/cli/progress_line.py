"""One line in the terminal that says what is being done, and disappears."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.errors import for_terminal

CLEAR_LINE = "\r\033[K"
REDRAW_S = 0.1


@contextmanager
def progress_line(wanted: bool = True, redraw_s: float = REDRAW_S) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is being done; nothing is shown without a terminal."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda doing: None
        return
    shown = 0.0

    def show(doing: str) -> None:
        nonlocal shown
        if time.monotonic() - shown >= redraw_s:
            shown = time.monotonic()
            print(f"{CLEAR_LINE}{for_terminal(doing)}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print(CLEAR_LINE, end="", file=sys.stderr, flush=True)
