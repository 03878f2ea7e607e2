"""JSON of a run's files, with limits on depth and values; and one-line errors for whatever a checkpoint causes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.errors import CheckpointError, HoldfastError, one_line, printable

MAX_JSON_DEPTH = 32  # levels of lists and mappings; Python's JSON parser fails near 1000


@contextmanager
def as_checkpoint_error(message: str) -> Iterator[None]:
    """Turn any error raised while applying a checkpoint into a one-line CheckpointError that begins with `message`."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:  # a malicious checkpoint can cause any exception
        raise CheckpointError(f"{message} ({f'{type(error).__name__}: {one_line(error)}'[:200]})") from error


def dump_json(value: Any) -> bytes:
    """Return a value as indented JSON with sorted keys."""
    return (json.dumps(value, allow_nan=False, indent=1, sort_keys=True) + "\n").encode()


def parse_json(data: bytes, path: Path) -> Any:
    """Parse JSON; raise CheckpointError if it is invalid, nested too deeply or contains NaN."""
    try:
        value = json.loads(data.decode("utf-8"))
    except RecursionError:
        raise CheckpointError(f"{path}: nested deeper than {MAX_JSON_DEPTH} levels") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({one_line(error, 120)})") from None
    if problem := find_non_json(value):
        raise CheckpointError(f"{path}: {problem}")
    return value


def find_non_json(value: Any) -> str | None:
    """Describe the first value that JSON cannot represent ("a.b is nan, ..."), or return None. Tuples are allowed."""
    found = _find(value, 0)
    if found is None:
        return None
    path, problem = found
    where = "".join(f"[{key}]" if isinstance(key, int) else f".{printable(key)}" for key in reversed(path))
    return problem.replace("{where}", where.removeprefix(".") or "it", 1)


def _find(value: Any, depth: int) -> tuple[list[int | str], str] | None:
    """Return the keys that lead to the first such value, innermost first, and the problem with {where} in it."""
    if depth > MAX_JSON_DEPTH:
        return [], f"nested deeper than {MAX_JSON_DEPTH} levels"
    if isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict) and not isinstance(key, str):
                return [], f"{{where}} has the key {key!r}, which is not text"
            if found := _find(item, depth + 1):
                found[0].append(key)
                return found
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return [], f"{{where}} is {value}, which JSON cannot represent"
    if value is None or isinstance(value, bool | int | float | str):
        return None
    return [], f"{{where}} is a {type(value).__name__}, which JSON cannot represent"
