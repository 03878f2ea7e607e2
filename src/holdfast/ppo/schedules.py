"""Schedules: settings such as the learning rate that change during a run."""

from __future__ import annotations

import math

from holdfast.config.settings import Schedule


def scheduled(start: float, schedule: Schedule, progress: float) -> float:
    """Return the value at `progress`: `start` at 0 and `schedule.end` at 1; always `start` if constant."""
    progress = min(max(progress, 0.0), 1.0)  # whole batches may add up to more than the total steps
    if schedule.kind == "constant":
        return start
    if schedule.kind == "linear":
        return start + (schedule.end - start) * progress
    return schedule.end + (start - schedule.end) * 0.5 * (1.0 + math.cos(math.pi * progress))
