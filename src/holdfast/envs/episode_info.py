"""Numbers that an environment reports in `info` when an episode ends: they become the metrics `info/<name>`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from holdfast.errors import printable

MAX_NAMES = 64  # of a run; the first by name
MAX_LENGTH = 80  # characters of a name
# Whether a time limit ended the episode is known already, and the seconds it took differ between identical runs.
SKIPPED = {"TimeLimit.truncated", "episode/t"}


def numbers_in(info: Any) -> dict[str, float]:
    """Return the finite numbers in `info`, sorted by name; those of a nested dictionary as "outer/inner".

    At most MAX_NAMES + 1, so that it is known if there are too many.
    """
    if not info or not isinstance(info, Mapping):
        return {}
    found: dict[str, float] = {}
    for name, value in _flatten(info):
        if name not in SKIPPED and (number := _number(value)) is not None:
            found.setdefault(printable(name, MAX_LENGTH), number)
    return {name: found[name] for name in sorted(found)[: MAX_NAMES + 1]}


def row_of(info: Any, row: int) -> dict[str, Any]:
    """Return the info of one environment from that of a vector environment.

    By Gymnasium's convention `info[name]` has a row for each environment, and `info["_name"]` says which rows are set.
    """
    if not isinstance(info, Mapping):
        return {}
    found = {}
    for name, values in info.items():
        is_set: Any = info.get(f"_{name}")
        if not isinstance(name, str) or name.startswith("_") or (_has_rows(is_set, row) and not is_set[row]):
            continue
        if isinstance(values, Mapping):
            found[name] = row_of(values, row)
        elif _has_rows(values, row):
            found[name] = values[row]
    return found


def _has_rows(values: Any, row: int) -> bool:
    return isinstance(values, np.ndarray) and values.ndim > 0 and len(values) > row


def _flatten(info: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in info.items():
        if not isinstance(name, str) or not name:
            continue
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", x) for inner, x in value.items() if isinstance(inner, str))
        else:
            yield name, value


def _number(value: Any) -> float | None:
    """Return a bool, an integer or a float, of Python or NumPy, as a float; None for anything else, NaN and infinities."""
    if isinstance(value, np.ndarray | np.generic):
        if value.ndim or value.dtype.kind not in "biuf":
            return None
    elif not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer above 1e308
        return None
    return number if math.isfinite(number) else None
