"""Returns and lengths of finished episodes, per slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Episode:
    slot: int
    episode_return: float
    length: int


class EpisodeTracker:
    """Sum the rewards and count the steps of every slot until its episode ends."""

    def __init__(self, num_slots: int, window: int = 100):
        self._return = np.zeros(num_slots, np.float64)
        self._length = np.zeros(num_slots, np.int64)
        self.recent: deque[Episode] = deque(maxlen=window)
        self.count = 0

    def step(self, rewards: np.ndarray, ended: np.ndarray, valid: np.ndarray) -> list[Episode]:
        """Add one transition per slot, ignoring those that are not valid; return the episodes that ended."""
        self._return += np.where(valid, rewards, 0.0)
        self._length += valid
        if not ended.any():
            return []
        finished = []
        for slot in np.flatnonzero(ended):
            if valid[slot]:
                finished.append(Episode(int(slot), float(self._return[slot]), int(self._length[slot])))
            self._return[slot], self._length[slot] = 0.0, 0
        self.recent.extend(finished)
        self.count += len(finished)
        return finished

    def forget_running(self) -> None:
        """Reset the sums of all running episodes, because the worlds restarted."""
        self._return[:], self._length[:] = 0.0, 0

    def tensors(self) -> dict[str, Tensor]:
        """Return everything except `count` as tensors, for a checkpoint."""
        recent = list(self.recent)
        return {
            "running_return": torch.tensor(self._return),
            "running_length": torch.tensor(self._length),
            "slot": torch.tensor([e.slot for e in recent], dtype=torch.int64),
            "episode_return": torch.tensor([e.episode_return for e in recent], dtype=torch.float64),
            "length": torch.tensor([e.length for e in recent], dtype=torch.int64),
        }

    def restore(self, tensors: Mapping[str, Tensor], count: int) -> None:
        self._return[:] = tensors["running_return"].numpy()
        self._length[:] = tensors["running_length"].numpy()
        columns = (tensors[name].tolist() for name in ("slot", "episode_return", "length"))
        self.recent.clear()
        self.recent.extend(Episode(*values) for values in zip(*columns, strict=True))
        self.count = count

    @property
    def mean_return(self) -> float | None:
        return float(np.mean([e.episode_return for e in self.recent])) if self.recent else None

    @property
    def mean_length(self) -> float | None:
        return float(np.mean([e.length for e in self.recent])) if self.recent else None
