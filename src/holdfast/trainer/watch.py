"""Warn about unhealthy training early, with the likely cause and what to change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.config.settings import Settings
from holdfast.errors import name_some
from holdfast.trainer.learner import Parity

PARITY_BREACH = 1e-3  # four orders of magnitude above rounding errors, so only a bug reaches it
ENTROPY_LEFT = 0.01  # fraction of the first entropy below which a policy hardly explores
EPISODES = 100  # the mean return is taken over this many episodes
LASTING = 10  # a low return over this many updates in a row is a collapse
MAX_NAMES = 4  # a warning lists at most this many parameters

Metrics = Mapping[str, float | None]


class Watch:
    """Check every update; report each kind of problem once, and again if it becomes ten times worse.

    before: metrics that this run logged before it was resumed; problems in them are not reported again.
    """

    def __init__(self, settings: Settings, before: Iterable[Mapping[str, Any]] = ()):
        self.settings = settings
        self._reported: dict[str, float] = {}
        self._usual: dict[str, float] = {}
        self._first_entropy: float | None = None
        self._returns = Returns()
        for row in before:
            self._look_at({key: value for key, value in row.items() if isinstance(value, int | float)})

    def look(self, parity: Parity, metrics: Metrics, without_gradient: Sequence[str] = ()) -> list[str]:
        """Return warnings for this update, usually none."""
        texts = []
        if self._worse("parity", parity.max_log_ratio, PARITY_BREACH):
            texts.append(
                "PARITY BREACH: for the same steps, learning computes different action probabilities than acting did (largest "
                f"|log-ratio| {parity.max_log_ratio:.2g}; healthy: below 1e-5). {explain_parity(parity, self.settings)}"
            )
        if self._once("no gradient") and without_gradient:  # checked after the first update of a process
            texts.append(
                f"NO GRADIENT in learning for {name_some(without_gradient, MAX_NAMES)}. Check that forward uses "
                "these parameters and does not detach their output; if they are frozen on purpose, use requires_grad_(False)."
            )
        return texts + self._look_at(metrics)

    def _look_at(self, metrics: Metrics) -> list[str]:
        texts = []
        if times := self._exploded("grad_norm_recurrence", metrics, smallest=10.0, limit=100.0):
            texts.append(
                f"GRADIENT EXPLODES: the recurrence's gradient is {times:.0f} times its usual size. "
                "Try a shorter trainer.horizon or a smaller trainer.lr."
            )
        if times := self._exploded("value_loss", metrics, smallest=1.0, limit=1000.0):
            texts.append(
                f"VALUES EXPLODE: the value loss is {times:.0f} times its usual size. "
                "Try a smaller trainer.lr or trainer.reward_scale."
            )
        returns, entropy = self._returns, metrics.get("entropy")
        returns.add(metrics)
        if self._first_entropy is None:
            self._first_entropy = entropy
        first = self._first_entropy or 0.0  # may be negative for continuous actions, whose entropy has no lower bound
        no_exploration = first > 0 and entropy is not None and not entropy > ENTROPY_LEFT * first
        if no_exploration and not returns.learned and self._once("entropy"):  # after learning, low entropy is fine
            texts.append(
                f"ENTROPY COLLAPSED from {first:.2g} to {entropy:.2g}, and the return has not risen: the policy has "
                "stopped exploring. Try a larger trainer.entropy_coef or a smaller trainer.lr."
            )
        if returns.num_low >= LASTING and self._once(f"collapse from {returns.best}"):
            kept = "; the best checkpoint is kept (trainer.keep.best)" if self.settings.trainer.keep.best else ""
            texts.append(
                f"RETURN COLLAPSED from {returns.best:.4g} at update {returns.best_update} to {returns.now:.4g}. "
                f"Try a smaller trainer.lr or trainer.target_kl{kept}."
            )
        return texts

    def _exploded(self, key: str, metrics: Metrics, smallest: float, limit: float) -> float:
        """Return the ratio of a metric to its running mean if it should be reported, else 0."""
        value, usual = metrics.get(key) or 0.0, self._usual.get(key)
        self._usual[key] = value if usual is None else 0.95 * usual + 0.05 * value
        times = value / usual if usual else 0.0
        return times if not value <= smallest and self._worse(key, times, limit) else 0.0

    def _worse(self, kind: str, value: float, limit: float) -> bool:
        """Return whether to report: the value is above the limit and above ten times the last reported value."""
        value = math.inf if math.isnan(value) else value
        if not value > max(limit, 10 * self._reported.get(kind, 0.0)):
            return False
        self._reported[kind] = value
        return True

    def _once(self, kind: str) -> bool:
        return self._worse(kind, 1.0, 0.5)


class Returns:
    """Track the best and the current mean return; the mean change per update estimates the noise."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.best = self.now = 0.0
        self.best_update = 0
        self._noise = 0.0  # mean change per update
        self.num_low = 0  # updates in a row with a low return

    def add(self, metrics: Metrics) -> None:
        value = metrics.get("episode_return")
        if value is None or (metrics.get("episodes") or 0) < EPISODES:
            return
        if self.first is None:
            self.first = self.best = self.now = value
        self._noise = 0.95 * self._noise + 0.05 * abs(value - self.now)
        self.now = value
        if value > self.best:
            self.best, self.best_update = value, int(metrics.get("update") or 0)
        self.num_low = self.num_low + 1 if self.learned and value < self.best - (self.best - self.first) / 2 else 0

    @property
    def learned(self) -> bool:
        """Whether the best return is above the first one by more than noise."""
        return self.first is not None and self.best - self.first > 10 * self._noise


def explain_parity(parity: Parity, settings: Settings) -> str:
    """Describe the likely bug, judging by where in the segments the log-ratio differs from 0."""
    if settings.trainer.start_states == "zeros":
        return "Expected with trainer.start_states=zeros: only learning starts every segment from zero memory."
    wrong, after_first = parity.log_ratio > PARITY_BREACH, parity.first.cumsum(0) > 0
    if not (wrong & ~after_first).any():
        return (
            "The probabilities differ only after an episode start inside a segment: probably acting and learning "
            "reset memory at different steps, or one of them resets only part of it."
        )
    if not (wrong & after_first).any():
        return (
            "The probabilities differ only before the first episode start of a segment: probably the segment's start "
            "state is wrong (shifted by a step, from another slot, or reset)."
        )
    return (
        "The probabilities differ both before and after episode starts: probably not a memory bug. Check for dropout, "
        "batch statistics, a normaliser that changes between acting and learning, or swapped time and slot axes."
    )
