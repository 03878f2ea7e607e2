"""Find a checkpoint in a folder of checkpoints. A damaged one is reported and skipped."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from holdfast.checkpoint.store import FACTS, MANIFEST, NAME, is_tensor_file, read_facts
from holdfast.errors import CheckpointError
from holdfast.runs.files import reason_of

logger = logging.getLogger(__name__)
T = TypeVar("T")


def list_checkpoints(folder: Path) -> list[Path]:
    """List all checkpoints of a folder, oldest first (by name, numbers as numbers), without verifying them.

    A folder without a manifest is listed if it has other files of a checkpoint: it is a damaged one.
    """
    try:
        found = [p for p in folder.iterdir() if NAME.fullmatch(p.name) and p.is_dir() and _has_files(p)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be read ({reason_of(error)})") from error
    return sorted(found, key=lambda p: _numeric_order(p.name))


def newest_first(folder: Path) -> list[Path]:
    return list_checkpoints(folder)[::-1]


def best_first(folder: Path) -> list[Path]:
    """List checkpoints by mean return, highest first, the newer of equals first; those without one are left out."""
    returns: dict[Path, float] = {}
    for path in newest_first(folder):
        try:
            if (value := return_of(read_facts(path))) is not None:
                returns[path] = value
        except CheckpointError as error:
            logger.warning("%s; this checkpoint is skipped", error)
    return sorted(returns, key=returns.__getitem__, reverse=True)


def return_of(facts: Mapping[str, Any]) -> float | None:
    """The mean return when a checkpoint was saved; None if no episode had ended."""
    value = facts.get("episode_return")
    return float(value) if isinstance(value, int | float) else None


def first_usable(paths: Iterable[Path], use: Callable[[Path], T]) -> tuple[Path, T] | None:
    """Try checkpoints in this order; return the first for which `use` raises no CheckpointError, and its result.

    Each checkpoint that fails is reported with the one that is used instead. If all fail, CheckpointError gives every
    reason. None if there are no checkpoints.
    """
    errors: list[CheckpointError] = []
    for path in paths:
        try:
            result = use(path)
        except CheckpointError as error:
            errors.append(error)
            continue
        for error in errors:
            logger.warning("%s; checkpoint %s is used instead", error, path.name)
        return path, result
    if errors:
        raise CheckpointError("\n".join(map(str, [*errors, "No checkpoint can be used."])))
    return None


def _has_files(path: Path) -> bool:
    try:
        return any(file.name in (MANIFEST, FACTS) or is_tensor_file(file.name) for file in path.iterdir())
    except FileNotFoundError:
        return False  # removed in the meantime
    except OSError:
        return True  # reading it will raise the error


def _numeric_order(name: str) -> list[tuple[int, int, str]]:
    """Sort key: step-9 before step-10, and names without a number, such as a copy called best, before all others."""
    return [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in re.split(r"([0-9]+)", name) if p]
