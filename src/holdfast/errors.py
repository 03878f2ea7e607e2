"""Errors meant for the user: the command line prints their message without a traceback."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

OURS = Path(__file__).parent
MAX_LINES, MAX_LINE = 12, 300  # of a message
COLOR = re.compile(r"\x1b\[[0-9;]*m")


class HoldfastError(Exception):
    """An error that the user can fix; the message names the cause, the value and what to do.

    claimed: this rank has told the others that it reports the error, so they stay quiet.
    """

    claimed = False


class SettingsError(HoldfastError):
    """A setting, name or size from the user is invalid. Raised before anything is written; exit code 2."""


class NonFiniteError(HoldfastError):
    """A world returned NaN or Inf; the message names the environment, the slot and the field."""


class CheckpointError(HoldfastError):
    """A run's file cannot be written, or is damaged; the message names the file and the reason."""


def printable(text: str, length: int = 60) -> str:
    """Return text for an error message: one line, control characters escaped, at most `length` characters."""
    text = _escape(text[: length + 1])
    return text if len(text) <= length else text[: length - 3] + "..."


def for_terminal(message: str) -> str:
    """Return a message as it may be printed: no character that controls a terminal, no endless line, not too many lines.

    Messages contain names from files and from other libraries' errors, so this is applied where messages are printed.
    """
    lines = message.rstrip("\n").split("\n")
    if len(lines) > MAX_LINES:
        lines[-2:-2] = [f"... {len(lines) - MAX_LINES + 1} more lines ..."]
        del lines[MAX_LINES - 3 : -3]
    return "\n".join(_shorten(_escape(COLOR.sub("", _shorten(line, 10_000)))) for line in lines)


def _shorten(line: str, length: int = MAX_LINE) -> str:
    """Cut a line in the middle: its end often says what to do."""
    return line if len(line) <= length else f"{line[: length - 100]} ... {line[-95:]}"


def _escape(text: str) -> str:
    """Escape what is not printable: control characters, direction marks, line separators and surrogates."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def message_of(error: BaseException) -> str:
    """Return str(error), even if that raises."""
    try:
        return str(error)
    except Exception as problem:
        return f"(its message cannot be shown: __str__ raised {type(problem).__name__})"


def first_line(error: BaseException) -> str:
    """Return the first line of the error message, cut at 200 characters."""
    return (message_of(error).strip().splitlines() or ["no message"])[0][:200]


def one_line(error: BaseException, limit: int = 200) -> str:
    """Return the whole error message on one line, cut at `limit` characters."""
    return " ".join(message_of(error).split())[:limit]


def name_some(names: Iterable[str], most: int = 3) -> str:
    """Return the first few of these names, and the number of others: 'a, b, c and 2 more'."""
    names = [*dict.fromkeys(names)]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def lack_of_memory(needed: int, free: int) -> str:
    """Return '124 GB of memory, but only 8 GB are free' if `needed` bytes are more than `free`; '' if they fit."""
    unit, name = (2**30, "GB") if needed >= 2**30 else (2**20, "MB")
    return (
        f"{needed / unit:,.0f} {name} of memory, but only {free / unit:,.0f} {name} are free" if needed > free else ""
    )


def split_code_name(text: str) -> tuple[str, str]:
    """Split FILE.py:NAME into its parts. FILE.py alone has the name ''; other text without a colon has the file ''."""
    if text.endswith(".py"):
        return text, ""
    file, _, name = text.rpartition(":")
    return file, name


def reason_of(error: OSError) -> str:
    """Return the operating system's error message in lower case, such as "no space left on device"."""
    return (error.strerror or str(error) or type(error).__name__).lower()


def place_of(error: BaseException) -> str:
    """Return ' at mine.py:31' for the innermost line of user code in the traceback; '' if there is none."""
    return place_in(traceback.walk_tb(error.__traceback__))


def place_in(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return ' at mine.py:31' for the last of these (frame, line number) pairs that is user code; '' if none is."""
    own = [
        f"{short_path(path)}:{line}" for frame, line in frames if is_user_code(path := Path(frame.f_code.co_filename))
    ]
    return f" at {own[-1]}" if own else ""


def short_path(path: Path) -> Path:
    """Return the path relative to the working directory, or its last two parts if it is outside that directory."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(*path.parts[-2:])


def is_user_code(path: Path) -> bool:
    """Return whether a file is user code: not part of Holdfast, Python or an installed package."""
    if path.name.startswith("<") or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    others = (OURS, sysconfig.get_path("stdlib"), sysconfig.get_path("scripts"))
    return not any(path.is_relative_to(folder) for folder in others)
