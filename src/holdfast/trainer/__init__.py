"""The training loop and what surrounds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.config import Settings
from holdfast.runs import find_resumable

if TYPE_CHECKING:
    from holdfast.trainer.loop import TrainResult


def train(settings: Settings) -> TrainResult:
    """Train as the settings say; if run=NAME exists, resume it."""
    resumable = find_resumable(settings)
    from holdfast.trainer import loop  # imports torch, which a run that cannot be resumed should not wait for

    return loop.train(settings, resumable)
