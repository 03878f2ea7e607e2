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
    """What a callback sees after an update. `stop()` finishes the run: it is saved, and can be resumed.

    metrics: the line that this update adds to metrics.jsonl, such as episode_return, which is None before an episode ends.
    """

    run: Path
    metrics: Mapping[str, Any]
    stopped: bool = field(default=False, init=False)

    @property
    def update(self) -> int:
        return self.metrics["update"]

    @property
    def agent_steps(self) -> int:
        return self.metrics["agent_steps"]

    @property
    def episode_return(self) -> float | None:
        """Mean return of the last 100 episodes."""
        return self.metrics["episode_return"]

    def stop(self) -> None:
        self.stopped = True


Callback = Callable[[UpdateInfo], None]


def call(callback: Callback | None, info: UpdateInfo, ranks: Shards) -> bool:
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
