"""Finished episodes: return, length, and what the environment reported about them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from holdfast.envs.episode_info import MAX_NAMES

WINDOW = 100  # mean returns are taken over this many episodes


@dataclass(frozen=True, order=True)
class Episode:
    """A finished episode. Episodes are ordered by the step of the rollout at which they ended, then by slot."""

    step: int
    slot: int
    episode_return: float
    length: int
    info: dict[str, float] = field(default_factory=dict, compare=False)  # numbers that the environment reported


class EpisodeTracker:
    """Sum the rewards and count the steps of every slot until its episode ends. first_slot: the number of the first one."""

    def __init__(self, num_slots: int, first_slot: int = 0):
        self._first_slot = first_slot
        self._return = np.zeros(num_slots, np.float64)
        self._length = np.zeros(num_slots, np.int64)

    def step(
        self,
        rewards: np.ndarray,
        ended: np.ndarray,
        valid: np.ndarray,
        number: int = 0,
        infos: Iterable[tuple[int, dict[str, float]]] = (),
    ) -> list[Episode]:
        """Add one transition per slot, ignoring those that are not valid; return the episodes that ended.

        number: the step of the rollout. infos: `World.episode_infos` of this step.
        """
        self._return += np.where(valid, rewards, 0.0)
        self._length += valid
        if not ended.any():
            return []
        finished, info_of = [], dict(infos)
        for index in np.flatnonzero(ended).tolist():
            if valid[index]:
                slot = self._first_slot + index
                total, length = float(self._return[index]), int(self._length[index])
                finished.append(Episode(number, slot, total, length, info_of.get(index, {})))
            self._return[index], self._length[index] = 0.0, 0
        return finished

    def forget_running(self) -> None:
        """Reset the sums of all running episodes, because the worlds restarted."""
        self._return[:], self._length[:] = 0.0, 0

    def tensors(self) -> dict[str, Tensor]:
        """Return the running episodes as tensors [slots], for a checkpoint."""
        return {"running_return": torch.tensor(self._return), "running_length": torch.tensor(self._length)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._return[:] = tensors["running_return"].numpy()
        self._length[:] = tensors["running_length"].numpy()


class RecentEpisodes:
    """The newest finished episodes of a run, and the number of all."""

    def __init__(self, window: int = WINDOW):
        self.recent: deque[Episode] = deque(maxlen=window)
        self.count = 0

    def add(self, episodes: Iterable[Episode]) -> None:
        """Add the episodes that ended in one rollout, in any order."""
        ordered = sorted(episodes)
        self.recent.extend(ordered)
        self.count += len(ordered)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything except `count` and `info_names` as tensors, for a checkpoint."""
        names = self.info_names
        rows = [[e.info.get(name, math.inf) for name in names] for e in self.recent]  # infinity: not reported
        return {
            "slot": torch.tensor([e.slot for e in self.recent], dtype=torch.int64),
            "episode_return": torch.tensor([e.episode_return for e in self.recent], dtype=torch.float64),
            "length": torch.tensor([e.length for e in self.recent], dtype=torch.int64),
            **({"info": torch.tensor(rows, dtype=torch.float64)} if names else {}),
        }

    def restore(self, tensors: Mapping[str, Tensor], count: int, info_names: Sequence[str] = ()) -> None:
        columns = [tensors[name].tolist() for name in ("slot", "episode_return", "length")]
        rows = tensors["info"].tolist() if info_names else [[]] * len(columns[0])
        infos = [{name: x for name, x in zip(info_names, row, strict=True) if x < math.inf} for row in rows]
        self.recent.clear()
        self.recent.extend(Episode(0, *values) for values in zip(*columns, infos, strict=True))
        self.count = count

    @property
    def info_names(self) -> list[str]:
        """Names of the numbers that environments reported about the newest episodes."""
        return sorted({name for e in self.recent for name in e.info})

    @property
    def mean_return(self) -> float | None:
        return float(np.mean([e.episode_return for e in self.recent])) if self.recent else None

    @property
    def mean_length(self) -> float | None:
        return float(np.mean([e.length for e in self.recent])) if self.recent else None


def mean_info(episodes: Collection[Episode], prefix: str = "info/") -> dict[str, float]:
    """Return the mean of every reported number over the episodes that have it; of MAX_NAMES names, the first by name."""
    names = sorted({name for e in episodes for name in e.info})[:MAX_NAMES]
    return {f"{prefix}{name}": float(np.mean([e.info[name] for e in episodes if name in e.info])) for name in names}
