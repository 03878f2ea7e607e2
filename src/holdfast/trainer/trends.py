"""Trends over the updates of a run, for the warnings: has the return risen, does the critic explain anything."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import fmean, median
from typing import NamedTuple

from holdfast.rollout import WINDOW

Metrics = Mapping[str, float | None]

SIGNIFICANT = 5.0  # a rise of so many standard errors, and so many usual changes from update to update, is no noise
RISING = 1.0  # standard errors between many updates at the start and many at the end; a rise of more may be one
LASTING = 10  # updates in a row that make a problem of what could be chance
FLAT = (50, 0.4, 200)  # updates without a rise that are too many: this fraction of the run, but within these limits


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
        self.constant = False  # the mean return has never changed
        self.learned = False  # the best return was above the first one by more than the noise until then
        self.num_low = 0  # updates in a row with a low return
        self._num_flat = 0  # updates in a row without a rise since the start
        self._episodes = 0.0
        self._changes: list[float] = []  # |change| of the mean return, where it changed
        self._variances: list[float] = []  # of an episode's return, estimated from two changes each
        self._last_change = 0.0
        self._early: list[Point] = []
        self._late: deque[Point] = deque(maxlen=self._patience // 3)

    def add(self, metrics: Metrics) -> None:
        value, episodes = metrics.get("episode_return"), metrics.get("episodes") or 0
        if value is None or episodes < WINDOW:
            return
        if self.first is None:
            self.first = self.best = self.now = value
            self._episodes, self.constant = episodes, True
        self._add_change(value - self.now, min(episodes - self._episodes, WINDOW))
        self.count += 1
        self.now, self._episodes = value, episodes
        self.constant = self.constant and value == self.first
        if value > self.best:
            self.best, self.best_update = value, int(metrics.get("update") or 0)
            self.learned = self.learned or self._is_no_noise(self.best - self.first)
        self.num_low = self.num_low + 1 if self.learned and value < self.best - (self.best - self.first) / 2 else 0
        if len(self._early) < self._patience // 3:
            self._early.append(Point(value, episodes))
        self._late.append(Point(value, episodes))
        self._num_flat = self._num_flat + 1 if not self.learned and self._is_level() else 0

    def _add_change(self, change: float, num_new: float) -> None:
        """Note a change of the mean return, in which `num_new` episodes took the place of as many older ones."""
        if change:
            self._changes.append(abs(change))
        if num_new > 0 or change:
            # A change is a sum of 2 x num_new returns, each divided by WINDOW. The difference of two changes has twice its
            # variance, and no trend in it.
            self._variances.append(((change - self._last_change) * WINDOW) ** 2 / (4 * max(num_new, 1)))
            self._last_change = change

    @property
    def _std(self) -> float:
        """The standard deviation of an episode's return."""
        return math.sqrt(fmean(self._variances)) if self._variances else 0.0

    def _is_no_noise(self, rise: float) -> bool:
        """Return whether a mean return has risen by more than noise.

        Where rewards are rare, a lucky episode is many standard errors above the others, but only one change.
        """
        change = fmean(self._changes) if self._changes else 0.0
        error = math.sqrt(2 / WINDOW) * self._std
        return rise > SIGNIFICANT * max(change, error)

    @property
    def doubled(self) -> bool:
        """Whether the return has risen by more than the size of the first one."""
        return self.learned and self.first is not None and self.best - self.first > abs(self.first)

    @property
    def flat(self) -> bool:
        """Whether the return has not risen for too long since the start."""
        return self.count >= self._patience and self._num_flat >= LASTING

    def _is_level(self) -> bool:
        """Return whether the newest returns are level with the first ones."""
        early, late = self._early, self._late
        if late[-1].episodes < early[0].episodes + 4 * WINDOW:
            return False  # too few new episodes to say
        before, now = self.levels
        shares = (1 / (WINDOW + points[-1].episodes - points[0].episodes) for points in (early, late))
        return now - before <= RISING * self._std * math.sqrt(sum(shares))

    @property
    def levels(self) -> tuple[float, float]:
        """The mean return over many updates at the start, and over as many at the end."""
        return fmean(point.value for point in self._early), fmean(point.value for point in self._late)


class Point(NamedTuple):
    """A mean return, and the number of episodes that had ended."""

    value: float
    episodes: float


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
