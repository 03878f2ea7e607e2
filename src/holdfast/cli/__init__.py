"""The command line: parse, call one function, print."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `holdfast` and of tools/train.py. With `argv`, the caller decides when the process ends."""
    try:
        from holdfast.cli import app  # here, so that Ctrl-C while it is imported is not a traceback

        app.main(argv)
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print("interrupted", file=sys.stderr)
        sys.exit(130)
