"""Always-on watch over training health. It says what is wrong, and the likely cause, as early as it can be seen."""

from __future__ import annotations

from holdfast.config.settings import Settings
from holdfast.trainer.learner import Parity

PARITY_LIMIT = 1e-3


class Watch:
    """Looks at every update; each kind of trouble is reported once, and again when it has become ten times worse."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self._reported: dict[str, float] = {}
        self._usual_gradient: float | None = None

    def look(self, parity: Parity, metrics: dict[str, float | None]) -> list[str]:
        """Warnings for this update, usually none."""
        warnings = []
        if self._worse("parity", parity.max_log_ratio, PARITY_LIMIT):
            warnings.append(
                f"PARITY BREACH: replaying a stored step gives another probability than acting did "
                f"(|log-ratio| {parity.max_log_ratio:.2g}, healthy is below 1e-5). {explain_parity(parity, self.settings)}"
            )
        recurrence = metrics.get("grad_norm_recurrence") or 0.0
        usual = self._usual_gradient
        self._usual_gradient = recurrence if usual is None else 0.95 * usual + 0.05 * recurrence
        if usual and recurrence > 10.0 and self._worse("gradient", recurrence / usual, 100.0):
            warnings.append(
                f"The recurrence's gradient is {recurrence / usual:.0f} times its usual size: it is exploding through time. "
                "A shorter trainer.horizon or a smaller trainer.lr usually helps."
            )
        return warnings

    def _worse(self, kind: str, value: float, limit: float) -> bool:
        if not value > max(limit, 10 * self._reported.get(kind, 0.0)):
            return False
        self._reported[kind] = value
        return True


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
