"""When a run is finished."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config.settings import TrainerSettings
from holdfast.rollout import WINDOW


@dataclass(frozen=True)
class Goal:
    """A run is finished after `updates` updates, or once its mean return has reached `stop_at_return`.

    The mean return counts only after `episodes` episodes: one for each slot, because the first to end are the short ones,
    and no fewer than it is taken over.
    """

    updates: int
    stop_at_return: float | None
    episodes: int

    @classmethod
    def of(cls, trainer: TrainerSettings, updates: int, num_slots: int) -> Goal:
        return cls(updates, trainer.stop_at_return, max(num_slots, WINDOW))

    def reached(self, update: int, mean_return: float | None, episodes: int) -> bool:
        """Return whether a run is finished after this update, with this mean return and number of episodes."""
        return update >= self.updates or self.solved(mean_return, episodes)

    def solved(self, mean_return: float | None, episodes: int) -> bool:
        """Return whether the mean return has reached trainer.stop_at_return."""
        if self.stop_at_return is None or mean_return is None:
            return False
        return episodes >= self.episodes and mean_return >= self.stop_at_return
