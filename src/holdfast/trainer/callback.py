"""A function of the user's that sees every update of a run and may stop it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from holdfast.errors import HoldfastError
from holdfast.ranks import Shards


@dataclass
class UpdateInfo:
    """What a callback sees after an update.

    run: the folder of the run; under torchrun, only rank 0 has it.
    metrics: the line that this update adds to metrics.jsonl.
    stopped: whether `stop` was called. The run is then saved, and can be resumed.
    """

    run: Path | None
    metrics: Mapping[str, Any]
    stopped: bool = field(default=False, init=False)

    @property
    def update(self) -> int:
        """The number of the update, from 1 on."""
        return self.metrics["update"]

    @property
    def agent_steps(self) -> int:
        """The number of steps of all agents so far."""
        return self.metrics["agent_steps"]

    @property
    def episode_return(self) -> float | None:
        """The mean return of the last 100 episodes; None before one has ended."""
        return self.metrics["episode_return"]

    def stop(self) -> None:
        """Finish the run after this update."""
        self.stopped = True


Callback = Callable[[UpdateInfo], None]


def run_callback(callback: Callback | None, info: UpdateInfo, ranks: Shards) -> bool:
    """Call the callback; return whether it stopped the run, on any rank."""
    if callback is None:
        return False
    returned: Any = callback(info)
    if returned is not None:  # in other libraries, True means to go on, or to stop
        raise HoldfastError(
            f"the callback returned {returned!r}, which has no meaning. Call update.stop() to stop the run; return nothing."
        )
    if ranks.group.size == 1:
        return info.stopped
    return bool(ranks.group.concat(torch.tensor([[int(info.stopped)]])).max())
