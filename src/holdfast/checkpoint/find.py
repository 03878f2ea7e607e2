"""Find a checkpoint in a folder of checkpoints. Damaged checkpoints are reported and skipped."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from holdfast.checkpoint.store import FACTS, MANIFEST, NAME, is_tensor_file, read_facts
from holdfast.errors import CheckpointError, reason_of
from holdfast.files import Folder

logger = logging.getLogger(__name__)
T = TypeVar("T")
MAX_TRIED = 100  # damaged checkpoints before giving up
FEW = 3


def list_checkpoints(folder: Path) -> list[Path]:
    """List all checkpoints in a folder without verifying them, sorted by the numbers in their names, oldest first.

    A folder that has checkpoint files but no manifest.json is listed too: it is a damaged checkpoint.
    """
    try:
        with Folder.open(folder, inside=1) as checkpoints:
            named = [name for name in checkpoints.names() if NAME.fullmatch(name)]
            found = [folder / name for name in named if _has_files(checkpoints, name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be read ({reason_of(error)})") from error
    return sorted(found, key=lambda p: _numeric_order(p.name))


def newest_first(folder: Path) -> list[Path]:
    return list_checkpoints(folder)[::-1]


def best_first(folder: Path) -> list[Path]:
    """List checkpoints by mean return, highest first (newer first if equal). Checkpoints without a return are left out."""
    returns: dict[Path, float] = {}
    errors: list[CheckpointError] = []
    for path in newest_first(folder):
        try:
            if (value := return_of(read_facts(path))) is not None:
                returns[path] = value
        except CheckpointError as error:
            errors.append(error)
    for message in first_few(f"{error}; skipping this checkpoint" for error in errors):
        logger.warning(message)
    return sorted(returns, key=returns.__getitem__, reverse=True)


def return_of(facts: Mapping[str, Any]) -> float | None:
    """Return the mean return stored in a checkpoint's facts; None if no episode had ended."""
    value = facts.get("episode_return")
    return float(value) if isinstance(value, int | float) else None


def first_usable(paths: Iterable[Path], use: Callable[[Path], T]) -> tuple[Path, T] | None:
    """Call `use` on each checkpoint until one raises no CheckpointError; return that path and the result of `use`.

    Checkpoints that fail are reported in warnings. If the first MAX_TRIED fail, raise CheckpointError with the reasons.
    Return None if `paths` is empty.
    """
    errors: list[CheckpointError] = []
    for path in itertools.islice(paths, MAX_TRIED):
        try:
            result = use(path)
        except CheckpointError as error:
            errors.append(error)
            continue
        for message in first_few(f"{error}; checkpoint {path.name} is used instead" for error in errors):
            logger.warning(message)
        return path, result
    if errors:
        raise CheckpointError("\n".join([*first_few(map(str, errors)), "No checkpoint can be used."]))
    return None


def first_few(messages: Iterable[str]) -> list[str]:
    """Return the first messages about checkpoints, and how many more there are."""
    found = list(messages)
    more = f"{len(found) - FEW:,} more checkpoints have such problems"
    return found if len(found) <= FEW + 1 else [*found[:FEW], more]


def _has_files(checkpoints: Folder, name: str) -> bool:
    """Return whether an entry looks like a checkpoint. A link does: reading it then fails with the reason."""
    if not checkpoints.is_folder(name):
        return checkpoints.is_link(name)
    try:
        with checkpoints.subfolder(name) as files:
            return any(file in (MANIFEST, FACTS) or is_tensor_file(file) for file in files.names())
    except FileNotFoundError:
        return False  # removed in the meantime
    except OSError:
        return True  # the error is raised when the checkpoint is read


def _numeric_order(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts step-9 before step-10, and names that begin with a letter before all others."""
    return [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in re.split(r"([0-9]+)", name) if p]
