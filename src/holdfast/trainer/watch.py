"""Watch the health of training: warn early, with the likely cause and what to change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.config.settings import Settings
from holdfast.trainer.learner import Parity

PARITY_BREACH = 1e-3  # four orders above rounding, so only a bug reaches it
ENTROPY_LEFT = 0.01  # share of the first entropy below which a policy hardly explores
EPISODES = 100  # the mean return is taken over this many episodes
MAX_NAMES = 4  # of parameters in a warning

Metrics = Mapping[str, float | None]


class Watch:
    """Checks every update; each kind of problem is reported once, and again when it has become ten times worse.

    before: metrics of earlier processes of this run; their problems are not reported again.
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
        texts = [self._parity(parity), self._no_gradient(without_gradient), *self._look_at(metrics)]
        return [text for text in texts if text]

    def _look_at(self, metrics: Metrics) -> list[str | None]:
        self._returns.add(metrics)
        return [self._gradient(metrics), self._values(metrics), self._entropy(metrics), self._collapse()]

    def _parity(self, parity: Parity) -> str | None:
        if not self._worse("parity", parity.max_log_ratio, PARITY_BREACH):
            return None
        return (
            "PARITY BREACH: learning computes other action probabilities than acting did for the same steps "
            f"(|log-ratio| {parity.max_log_ratio:.2g}, healthy is below 1e-5). {explain_parity(parity, self.settings)}"
        )

    def _no_gradient(self, names: Sequence[str]) -> str | None:
        """Warn after the first update of a process; later ones can only shorten the list."""
        if not self._once("no gradient") or not names:
            return None
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        return (
            f"NO GRADIENT in learning for {', '.join(names[:MAX_NAMES])}{more}. Check that forward uses them and does not "
            "detach what they compute; if they are frozen on purpose, use requires_grad_(False)."
        )

    def _gradient(self, metrics: Metrics) -> str | None:
        size = self._against_usual("grad_norm_recurrence", metrics)
        if (metrics.get("grad_norm_recurrence") or 0.0) <= 10.0 or not self._worse("gradient", size, 100.0):
            return None
        return (
            f"GRADIENT EXPLODES: the recurrence's gradient is {size:.0f} times its usual size. "
            "Try a shorter trainer.horizon or a smaller trainer.lr."
        )

    def _values(self, metrics: Metrics) -> str | None:
        size = self._against_usual("value_loss", metrics)
        if (metrics.get("value_loss") or 0.0) <= 1.0 or not self._worse("values", size, 1000.0):
            return None
        return (
            f"VALUES EXPLODE: the value loss is {size:.0f} times its usual size. "
            "Try a smaller trainer.lr or trainer.reward_scale."
        )

    def _entropy(self, metrics: Metrics) -> str | None:
        """Warn if exploration has stopped before anything was learned; after learning, low entropy is fine."""
        entropy = metrics.get("entropy")
        if entropy is None:
            return None
        if self._first_entropy is None:
            self._first_entropy = entropy
        first = self._first_entropy  # negative for some continuous actions, where it has no floor
        if first <= 0 or entropy > ENTROPY_LEFT * first or self._returns.learned or not self._once("entropy"):
            return None
        return (
            f"ENTROPY COLLAPSED from {first:.2g} to {entropy:.2g}, and the return has not risen: the policy has stopped "
            "exploring. Try a larger trainer.entropy_coef or a smaller trainer.lr."
        )

    def _collapse(self) -> str | None:
        returns = self._returns
        if not returns.collapsed or not self._once(f"collapse from {returns.best}"):
            return None
        return (
            f"RETURN COLLAPSED from {returns.best:.4g} at update {returns.best_update} to {returns.now:.4g}. "
            "Try a smaller trainer.lr or trainer.target_kl"
            f"{'; the best checkpoint is kept (trainer.keep.best).' if self.settings.trainer.keep.best else '.'}"
        )

    def _against_usual(self, key: str, metrics: Metrics) -> float:
        """The value divided by its running mean; 0 at first."""
        value = metrics.get(key) or 0.0
        usual = self._usual.get(key)
        self._usual[key] = value if usual is None else 0.95 * usual + 0.05 * value
        return value / usual if usual else 0.0

    def _worse(self, kind: str, value: float, limit: float) -> bool:
        """Whether to report: above the limit, and ten times worse than what was reported before."""
        value = math.inf if math.isnan(value) else value
        if not value > max(limit, 10 * self._reported.get(kind, 0.0)):
            return False
        self._reported[kind] = value
        return True

    def _once(self, kind: str) -> bool:
        return self._worse(kind, 1.0, 0.5)


class Returns:
    """How far the mean return has risen, and fallen again. Its change per update tells what is noise."""

    LASTING = 10  # updates in a row

    def __init__(self) -> None:
        self.first: float | None = None
        self.best = self.now = 0.0
        self.best_update = 0
        self._noise = 0.0  # mean change per update
        self._low = 0  # updates in a row

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
        self._low = self._low + 1 if self.learned and value < self.best - (self.best - self.first) / 2 else 0

    @property
    def learned(self) -> bool:
        """Whether the return has risen by more than noise."""
        return self.first is not None and self.best - self.first > 10 * self._noise

    @property
    def collapsed(self) -> bool:
        return self._low >= self.LASTING


def explain_parity(parity: Parity, settings: Settings) -> str:
    """Name the likely bug from where in the segments the difference occurs."""
    if settings.trainer.start_states == "zeros":
        return "Expected with trainer.start_states=zeros: learning starts segments from empty memory, acting did not."
    wrong = parity.log_ratio > PARITY_BREACH
    after_first = parity.first.cumsum(0) > 0
    before, after = bool((wrong & ~after_first).any()), bool((wrong & after_first).any())
    if before and after:
        return (
            "It differs both before and after episode starts: probably not memory but dropout, batch statistics or a "
            "normaliser that changed between acting and learning, or time and slots in another order."
        )
    if before:
        return (
            "It differs only before the first episode start of a segment: probably the segment's start state is wrong "
            "(shifted by a step, from another slot, or reset)."
        )
    return (
        "It differs only after an episode start inside a segment: probably acting and learning reset memory at "
        "different steps, or only part of it."
    )
