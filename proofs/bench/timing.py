"""Timing on a shared machine: alternate what is compared, and keep the fastest of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter


def time_in_turns(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Milliseconds of each call: the minimum over `repeats` rounds in which each runs once, after a warm-up."""
    for call in calls.values():
        call()
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            began = perf_counter()
            call()
            best[name] = min(best[name], perf_counter() - began)
    return {name: 1e3 * seconds for name, seconds in best.items()}
