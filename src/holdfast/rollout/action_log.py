"""Log the actions of every environment's current episode, so that a resumed run can replay these episodes."""

from __future__ import annotations

import numpy as np

from holdfast.envs import ReplayPoint
from holdfast.spec import BoxActions, MixedActions, WorldSpec

MOST_BYTES = 2**28  # maximum size of a log; an endless episode would otherwise fill the RAM


class ActionLog:
    """The actions of all slots, one row per step, since the start of the longest current episode.

    The log stores the row at which each environment's episode began. Rows before the earliest of these are overwritten.
    """

    def __init__(self, spec: WorldSpec, num_envs: int, most_bytes: int = MOST_BYTES):
        self._spec, self._num_envs = spec, num_envs
        row = (num_envs, spec.agents_per_env, *spec.actions.shape)
        self._rows = np.zeros((64, *row), _smallest_dtype(spec))
        self._most_rows = max(64, most_bytes // self._rows[0].nbytes)
        self._end = 0
        self._began = np.zeros(num_envs, np.int64)
        self._episodes = np.zeros(num_envs, np.int64)

    def start(self, point: ReplayPoint) -> None:
        """Start the log with the actions of a replay point."""
        self._end = int(point.lengths.max(initial=0))
        if self._end > len(self._rows):
            self._rows = np.zeros((2 * self._end, *self._rows.shape[1:]), self._rows.dtype)
        self._began[:] = self._end - point.lengths
        self._episodes[:] = point.episodes
        for env, (_, actions) in enumerate(point.per_env()):
            self._rows[self._end - len(actions) : self._end, env] = actions

    def add(self, actions: np.ndarray, episode: np.ndarray) -> None:
        """Add one step of every slot: actions [S, ...], and the episode numbers [S] after that step."""
        if self._end == len(self._rows):
            self._make_room()
        self._rows[self._end] = actions.reshape(self._rows[0].shape)
        self._end += 1
        episode = episode[:: self._spec.agents_per_env]
        changed = episode != self._episodes
        if changed.any():
            self._began[changed] = self._end
            self._episodes[changed] = episode[changed]

    def replay_point(self, seed: int, steps: int) -> ReplayPoint | None:
        """Return a replay point for the current episodes; None if one of them is too long for the log."""
        if self._began.min() < 0:
            return None
        pieces = [self._rows[began : self._end, env] for env, began in enumerate(self._began.tolist())]
        actions = np.concatenate(pieces).astype(self._spec.actions.dtype)
        return ReplayPoint(seed, steps, self._episodes.copy(), self._end - self._began, actions)

    def _make_room(self) -> None:
        """Drop rows that no current episode needs; if more than half are needed, double the capacity."""
        needed = self._end - max(0, int(self._began.min()))
        if needed >= self._most_rows:  # the longest episodes do not fit, so mark them as not replayable
            self._began[self._began < self._end - self._most_rows // 2] = np.iinfo(np.int64).min // 2
            needed = self._end - int(self._began[self._began >= 0].min(initial=self._end))
        drop = self._end - needed
        capacity = len(self._rows)
        while needed > capacity // 2 and capacity < self._most_rows:
            capacity *= 2
        kept = self._rows[drop : self._end]
        if capacity != len(self._rows):
            self._rows = np.zeros((capacity, *self._rows.shape[1:]), self._rows.dtype)
        self._rows[:needed] = kept
        self._end -= drop
        self._began -= drop


def _smallest_dtype(spec: WorldSpec) -> np.dtype:
    """Return the smallest dtype that holds every action, to keep the log small."""
    if isinstance(spec.actions, BoxActions | MixedActions):
        return np.dtype(spec.actions.dtype)
    return np.min_scalar_type(max(*spec.actions.sizes, 1) - 1)
