"""The training loop, and how a run is started, resumed, logged and saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.config import Settings
from holdfast.config.ranks import plan_ranks, started_ranks
from holdfast.runs import find_resumable

if TYPE_CHECKING:
    from holdfast.trainer.callback import Callback
    from holdfast.trainer.loop import TrainResult


def train(settings: Settings, callback: Callback | None = None) -> TrainResult:
    """Train with these settings; if run=NAME exists, resume that run. Under torchrun, train as one of its ranks.

    callback: called after every update; under torchrun, by every rank.
    """
    settings = plan_ranks(settings, started_ranks())
    if started_ranks() > 1:
        from holdfast.trainer.together import train_together

        return train_together(settings, callback)
    resumable = find_resumable(settings)
    from holdfast.trainer import loop  # slow, because it imports torch; errors about the run come first

    return loop.train(settings, resumable, callback=callback)


def check(settings: Settings) -> None:
    """Raise HoldfastError if `train` would refuse a new run with these settings. Writes nothing."""
    settings = plan_ranks(settings, 1)
    from holdfast.trainer import loop

    loop.check(settings)
