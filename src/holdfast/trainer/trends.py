"""Trends over the updates of a run, for the warnings: has the return risen, does the critic explain anything."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from statistics import fmean, median
from typing import NamedTuple

from holdfast.rollout import WINDOW

Metrics = Mapping[str, float | None]

SIGNIFICANT = 5.0  # standard errors; agents of one world do not have independent returns, so more than usual
RISING = 3.0  # the same for the difference between many updates at the start and many at the end
FLAT = (50, 0.4, 200)  # updates without a rise that are too many: this fraction of the run, but within these limits


class Level(NamedTuple):
    """A mean return and its standard error."""

    value: float
    error: float

    def above(self, other: Level) -> float:
        """Return how far this level is above the other one, in standard errors."""
        difference, error = self.value - other.value, math.hypot(self.error, other.error)
        return difference / error if error else difference * math.inf if difference else 0.0


class Returns:
    """Track the first, the best and the current mean return, and whether they differ by more than noise.

    updates: number in the whole run.
    """

    def __init__(self, updates: int) -> None:
        least, share, most = FLAT
        self._patience = int(min(most, max(least, share * updates)))
        self.first: float | None = None
        self.best = self.now = 0.0
        self.best_update = 0
        self.count = 0  # updates with a mean return
        self.constant = False  # all episodes so far had the same return
        self.num_low = 0  # updates in a row with a low return
        self._change = 0.0  # mean change per update
        self._first = self._best = Level(0.0, 0.0)
        self._early: list[Metrics] = []
        self._late: deque[Metrics] = deque(maxlen=self._patience // 3)

    def add(self, metrics: Metrics) -> None:
        value, std = metrics.get("episode_return"), metrics.get("episode_return_std")
        if value is None or (metrics.get("episodes") or 0) < WINDOW:
            return
        level = Level(value, (std or 0.0) / math.sqrt(WINDOW))
        if self.first is None:
            self.first = self.best = self.now = value
            self._first, self.constant = level, True
        self.count += 1
        self.constant = self.constant and value == self.first and not std
        self._change = 0.95 * self._change + 0.05 * abs(value - self.now)
        self.now = value
        if value > self.best:
            self.best, self.best_update, self._best = value, int(metrics.get("update") or 0), level
        self.num_low = self.num_low + 1 if self.learned and value < self.best - (self.best - self.first) / 2 else 0
        if len(self._early) < self._patience // 3:
            self._early.append(metrics)
        self._late.append(metrics)

    @property
    def learned(self) -> bool:
        """Whether the best return is above the first one by more than noise."""
        rise = self.best - (self.first or 0.0)
        return rise > 10 * self._change and self._best.above(self._first) > SIGNIFICANT

    @property
    def flat(self) -> bool:
        """Whether the return has not risen for too long since the start."""
        if self.learned or self.count < self._patience:
            return False
        if (self._late[-1].get("episodes") or 0) < 2 * WINDOW + (self._early[0].get("episodes") or 0):
            return False  # the newest mean return still has much in common with the first one
        return _level(self._late).above(_level(self._early)) <= RISING


def _level(rows: Collection[Metrics]) -> Level:
    """Return the mean return over several updates. Its error falls with the number of episodes that ended in them."""
    counts, stds = [row.get("episodes") or 0 for row in rows], [row.get("episode_return_std") or 0.0 for row in rows]
    value = fmean(row.get("episode_return") or 0.0 for row in rows)
    return Level(value, fmean(stds) / math.sqrt(WINDOW + max(counts) - min(counts)))


class ExplainedVariance:
    """Track how much of the variance of returns the critic explains. Medians, because single updates vary a lot.

    updates: number in the whole run. A short run is judged earlier.
    """

    LOW, GOOD = 0.05, 0.2  # medians over the last 50 and over 20 updates

    def __init__(self, updates: int):
        self.count = 0
        self._needed = max(30, min(80, updates * 3 // 5))
        self._recent: deque[float] = deque(maxlen=50)
        self.was_good = False

    def add(self, metrics: Metrics) -> None:
        value = metrics.get("explained_variance")
        if value is None or not math.isfinite(value):
            return
        self.count += 1
        self._recent.append(value)
        self.was_good = self.was_good or (len(self._recent) >= 20 and median([*self._recent][-20:]) >= self.GOOD)

    @property
    def now(self) -> float:
        return median(self._recent)

    @property
    def is_nothing(self) -> bool:
        return self.count >= self._needed and self.now < self.LOW
