"""The training loop, and how a run is started, resumed, logged and saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.config import Settings
from holdfast.runs import find_resumable

if TYPE_CHECKING:
    from holdfast.trainer.loop import TrainResult


def train(settings: Settings) -> TrainResult:
    """Train with these settings; if run=NAME exists, resume that run."""
    resumable = find_resumable(settings)
    from holdfast.trainer import loop  # slow, because it imports torch; errors about the run come first

    return loop.train(settings, resumable)
