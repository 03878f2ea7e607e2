"""Errors meant for the user: the command line prints their text and nothing else."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

OURS = Path(__file__).parent


class HoldfastError(Exception):
    """Something outside Holdfast is wrong; the message says what, with which value, and what to do."""


class SettingsError(HoldfastError):
    """A setting, a name or a size the user gave cannot be used. Exit code 2, before anything exists on disk."""


class NonFiniteError(HoldfastError):
    """A world produced NaN or Inf. Names environment, slot and field."""


def first_line(error: BaseException) -> str:
    """What it says, short enough for a table."""
    return (str(error).strip().splitlines() or ["without a word"])[0][:200]


def place_of(error: BaseException) -> str:
    """' at mine.py:31' for the innermost line of the user's own code that raised this; '' if it is none of theirs."""
    return place_in(traceback.walk_tb(error.__traceback__))


def place_in(frames: Iterable[tuple[FrameType, int]]) -> str:
    """The same for any frames, the innermost last."""
    own = [f"{short_path(path)}:{line}" for frame, line in frames if _is_own(path := Path(frame.f_code.co_filename))]
    return f" at {own[-1]}" if own else ""


def short_path(path: Path) -> Path:
    """Below the folder one is in, or with the folder it is in: short enough for a table."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(*path.parts[-2:])


def _is_own(path: Path) -> bool:
    """Neither Holdfast's, nor Python's, nor installed."""
    if path.name.startswith("<") or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    others = (OURS, sysconfig.get_path("stdlib"), sysconfig.get_path("scripts"))
    return not any(path.is_relative_to(folder) for folder in others)
