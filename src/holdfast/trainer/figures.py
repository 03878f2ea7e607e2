"""The figures of a run as text: how far it is, how a figure went, and numbers that fit where they stand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, SupportsFloat

Metrics = Mapping[str, Any]

SPARKS = "▁▂▃▄▅▆▇█"


class Pace:
    """How far the run is and how long it will take."""

    def __init__(self, total_steps: int):
        self.total_steps = total_steps
        self.steps = 0
        self.elapsed_s: float | None = None
        self.left_s: float | None = None
        self._first: tuple[int, float] | None = None

    @property
    def percent(self) -> int:
        return min(100, 100 * self.steps // max(self.total_steps, 1))

    def update(self, metrics: Metrics, now: float) -> None:
        self.steps = int(number(metrics, "agent_steps") or self.steps)
        self.elapsed_s = number(metrics, "wall_s")
        rate = number(metrics, "sps")
        if self._first is None:
            self._first = self.steps, now
        elif now > self._first[1] and self.steps > self._first[0]:  # steadier than the speed of one update
            rate = (self.steps - self._first[0]) / (now - self._first[1])
        self.left_s = max(self.total_steps - self.steps, 0) / rate if rate and rate > 0 else None


class History:
    """The whole course of a figure in bounded space: once full, neighbours are merged into their mean."""

    def __init__(self, most: int = 256):
        self.bins: list[float] = []
        self._most = most
        self._per_bin = 1
        self._open: list[float] = []

    def add(self, value: float | None) -> None:
        if value is None or not math.isfinite(value):
            return
        self._open.append(value)
        if len(self._open) < self._per_bin:
            return
        self.bins.append(math.fsum(self._open) / len(self._open))
        self._open.clear()
        if len(self.bins) == self._most:
            self.bins = [(a + b) / 2 for a, b in zip(self.bins[::2], self.bins[1::2], strict=True)]
            self._per_bin *= 2

    def sparkline(self, width: int) -> str:
        """The course from the first value to now in at most `width` characters, lowest to highest."""
        count = min(width, len(self.bins))
        edges = [i * len(self.bins) // max(count, 1) for i in range(count + 1)]
        means = [math.fsum(self.bins[a:b]) / (b - a) for a, b in pairwise(edges)]
        low, high = min(means, default=0.0), max(means, default=0.0)
        scale = (len(SPARKS) - 1) / (high - low) if high > low else 0.0
        return "".join(SPARKS[round((mean - low) * scale)] for mean in means)


def number(metrics: Metrics, key: str) -> float | None:
    value = metrics.get(key)
    return float(value) if isinstance(value, SupportsFloat) else None


def parity(metrics: Metrics) -> float | None:
    """The largest difference between what was stored and what replay gives."""
    found = [number(metrics, key) for key in ("parity_max_abs_logratio", "parity_max_abs_value")]
    known = [value for value in found if value is not None]
    return math.nan if any(map(math.isnan, known)) else max(known, default=None)


def whole(metrics: Metrics, key: str) -> str:
    value = number(metrics, key)
    return "-" if value is None else f"{value:,.0f}"


def fixed(metrics: Metrics, key: str, digits: int) -> str:
    value = number(metrics, key)
    if value is None:
        return "-"
    return f"{value:,.{digits}f}" if abs(value) < 1e5 else f"{value:.2e}"


def percent(metrics: Metrics, key: str, digits: int = 1) -> str:
    value = number(metrics, key)
    return "-" if value is None else f"{100 * value:.{digits}f}%"


def short(value: float | None) -> str:
    """About four digits of a figure of any size."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1e7:
        return f"{value:.3g}"
    return f"{value:,.{3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0}f}"


def tiny(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def duration(seconds: float | None) -> str:
    if seconds is None or not math.isfinite(seconds):
        return "-"
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days} d {h:02} h"
    if hours:
        return f"{h} h {m:02} min"
    return f"{m} min {s:02} s" if m else f"{s} s"
