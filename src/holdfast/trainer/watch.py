"""Always-on watch over training health. It says what is wrong, and the likely cause, as early as it can be seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.config.settings import Settings
from holdfast.trainer.learner import Parity

PARITY_LIMIT = 1e-3
ENTROPY_LEFT = 0.01  # share of the first entropy below which a policy hardly explores
EPISODES = 100  # the mean return is one of this many episodes

Metrics = Mapping[str, float | None]


class Watch:
    """Looks at every update; each kind of trouble is reported once, and again when it has become ten times worse.

    before: the rows, out of a file, of updates that an earlier process did; of them nothing is reported again.
    """

    def __init__(self, settings: Settings, before: Iterable[Mapping[str, Any]] = ()):
        self.settings = settings
        self._reported: dict[str, float] = {}
        self._usual: dict[str, float] = {}
        self._first_entropy: float | None = None
        self._returns = Returns()
        for row in before:
            self._look_at({key: value for key, value in row.items() if isinstance(value, int | float)})

    def look(self, parity: Parity, metrics: Metrics) -> list[str]:
        """Warnings for this update, usually none."""
        return [text for text in (self._parity(parity), *self._look_at(metrics)) if text]

    def _look_at(self, metrics: Metrics) -> list[str | None]:
        self._returns.add(metrics)
        return [self._gradient(metrics), self._values(metrics), self._entropy(metrics), self._collapse()]

    def _parity(self, parity: Parity) -> str | None:
        if not self._worse("parity", parity.max_log_ratio, PARITY_LIMIT):
            return None
        return (
            f"PARITY BREACH: replaying a stored step gives another probability than acting did "
            f"(|log-ratio| {parity.max_log_ratio:.2g}, healthy is below 1e-5). {explain_parity(parity, self.settings)}"
        )

    def _gradient(self, metrics: Metrics) -> str | None:
        size = self._against_usual("grad_norm_recurrence", metrics)
        if (metrics.get("grad_norm_recurrence") or 0.0) <= 10.0 or not self._worse("gradient", size, 100.0):
            return None
        return (
            f"The recurrence's gradient is {size:.0f} times its usual size: it is exploding through time. "
            "A shorter trainer.horizon or a smaller trainer.lr usually helps."
        )

    def _values(self, metrics: Metrics) -> str | None:
        size = self._against_usual("value_loss", metrics)
        if (metrics.get("value_loss") or 0.0) <= 1.0 or not self._worse("values", size, 1000.0):
            return None
        return (
            f"VALUES EXPLODE: the value loss is {size:.0f} times its usual size. "
            "A smaller trainer.lr or trainer.reward_scale usually helps."
        )

    def _entropy(self, metrics: Metrics) -> str | None:
        """An agent that has learned what there is to learn need not explore; one that has not, and does not, never will."""
        entropy = metrics.get("entropy")
        if entropy is None:
            return None
        if self._first_entropy is None:
            self._first_entropy = entropy
        first = self._first_entropy  # of real-valued actions it may be negative, and then it has no floor to reach
        if first <= 0 or entropy > ENTROPY_LEFT * first or self._returns.learned or not self._once("entropy"):
            return None
        return (
            f"ENTROPY IS GONE: {entropy:.2g}, at the start {first:.2g}, and the return has not risen. The policy has settled on "
            "what it does and explores no more. A larger trainer.entropy_coef or a smaller trainer.lr usually helps."
        )

    def _collapse(self) -> str | None:
        returns = self._returns
        if not returns.collapsed or not self._once(f"collapse from {returns.best}"):
            return None
        return (
            f"THE RETURN HAS COLLAPSED: {returns.best:.4g} at update {returns.best_update}, now {returns.now:.4g}. "
            "A smaller trainer.lr or trainer.target_kl usually helps"
            f"{'; the best checkpoint is kept (trainer.keep.best).' if self.settings.trainer.keep.best else '.'}"
        )

    def _against_usual(self, key: str, metrics: Metrics) -> float:
        """How many times its usual size a figure is; 0 before there is a usual one."""
        value = metrics.get(key) or 0.0
        usual = self._usual.get(key)
        self._usual[key] = value if usual is None else 0.95 * usual + 0.05 * value
        return value / usual if usual else 0.0

    def _worse(self, kind: str, value: float, limit: float) -> bool:
        value = math.inf if math.isnan(value) else value
        if not value > max(limit, 10 * self._reported.get(kind, 0.0)):
            return False
        self._reported[kind] = value
        return True

    def _once(self, kind: str) -> bool:
        return self._worse(kind, 1.0, 0.5)


class Returns:
    """How far the mean return has risen, and fallen again. Its moves from update to update say what is mere noise."""

    LASTING = 10  # updates

    def __init__(self) -> None:
        self.first: float | None = None
        self.best = self.now = 0.0
        self.best_update = 0
        self._moves: float = 0.0  # mean size of a move
        self._low = 0  # updates in a row

    def add(self, metrics: Metrics) -> None:
        value = metrics.get("episode_return")
        if value is None or (metrics.get("episodes") or 0) < EPISODES:
            return
        if self.first is None:
            self.first = self.best = self.now = value
        self._moves = 0.95 * self._moves + 0.05 * abs(value - self.now)
        self.now = value
        if value > self.best:
            self.best, self.best_update = value, int(metrics.get("update") or 0)
        self._low = self._low + 1 if self.learned and value < self.best - (self.best - self.first) / 2 else 0

    @property
    def learned(self) -> bool:
        """Whether the return has risen by more than its moves explain."""
        return self.first is not None and self.best - self.first > 10 * self._moves

    @property
    def collapsed(self) -> bool:
        return self._low >= self.LASTING


def explain_parity(parity: Parity, settings: Settings) -> str:
    """Where in the segments the difference sits tells which bug it is."""
    if settings.trainer.start_states == "zeros":
        return "This is declared: trainer.start_states=zeros learns from blank memory what was lived with a full one."
    wrong = parity.log_ratio > PARITY_LIMIT
    after_first = parity.first.cumsum(0) > 0
    before, after = bool((wrong & ~after_first).any()), bool((wrong & after_first).any())
    if before and after:
        return (
            "It differs before and after episode starts alike: likely not memory but dropout, batch statistics or a normaliser "
            "that moved between acting and learning; or time and slots are ordered differently."
        )
    if before:
        return (
            "It differs only before the first episode start of a segment: likely the memory a segment starts from is not "
            "the one it was lived with (shifted by a step, of another slot, or wiped)."
        )
    return (
        "It differs only after an episode start inside a segment: likely acting and learning reset memory at different "
        "steps, or only part of it."
    )
