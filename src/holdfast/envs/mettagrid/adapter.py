"""A world of MettaGrid simulations. MettaGrid's C++ code writes observations and rewards directly into the buffers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.envs.mettagrid.api import MettaGrid, convert_to_cpp_game_config, dtype_actions
from holdfast.envs.mettagrid.game import MettaGridEnv
from holdfast.envs.mettagrid.layout import describe_game
from holdfast.envs.world import Buffers, World
from holdfast.errors import HoldfastError


class MettaGridWorld(World):
    """One MettaGrid simulation per environment. All its agents start and end together, at steps known in advance."""

    def __init__(self, settings: MettaGridEnv, env_ids: range, buffers: Buffers | None = None):
        self._game = settings.game()
        super().__init__(describe_game(settings.name, self._game), env_ids, buffers)
        self._desync = getattr(settings, "desync", False)
        # Converting the configuration is most of the cost of a new simulation (0.7 to 6 ms), so do it once.
        self._config, _ = convert_to_cpp_game_config(self._game.config)
        b = self.buffers
        if not (b.obs.flags.c_contiguous and b.rewards.flags.c_contiguous):
            raise ValueError(
                "buffers.obs and buffers.rewards must be C-contiguous; otherwise MettaGrid would write into copies"
            )

        self._actions = np.zeros(self.num_slots, dtype_actions)
        no_vibes = np.zeros(self.world_spec.agents_per_env, dtype_actions)
        self._terminals = np.zeros(self.num_slots, bool)
        self._rows = [self.slots_of(i) for i in range(len(env_ids))]
        arrays = (b.obs, self._terminals, np.zeros(self.num_slots, bool), b.rewards, self._actions)
        self._views: list[Any] = [(*(array[rows] for array in arrays), no_vibes) for rows in self._rows]
        self._steppers: list[Callable[[], None]] = [_not_started] * len(env_ids)  # MettaGrid.step of each simulation
        self._ends = [0] * len(env_ids)
        self._next_end = 0  # no episode ends before this step
        self._flags_are_set = False

    def _step(self, envs: range) -> None:
        if self._flags_are_set:
            self.buffers.terminated[:] = False
            self.buffers.truncated[:] = False
            self._flags_are_set = False
        slots = slice(self._rows[envs.start].start, self._rows[envs.stop - 1].stop)
        np.copyto(self._actions[slots], self.buffers.actions[slots], casting="same_kind")
        i, steppers = envs.start, self._steppers
        try:
            for i in envs:
                steppers[i]()
        except RuntimeError as error:
            raise self._explain(i, error) from None
        if self.steps >= self._next_end:
            self._end_episodes(envs)

    def _end_episodes(self, envs: range) -> None:
        """Save the final observations and flags of ended episodes, then start the next episodes in the same rows."""
        b = self.buffers
        for i in envs:
            if self._ends[i] != self.steps:
                continue
            rows = self._rows[i]
            b.final_obs[rows] = b.obs[rows]
            b.terminated[rows] = self._terminals[rows]
            b.truncated[rows] = ~self._terminals[rows]  # time limit, or the first episode cut short by env.desync
            rewards = b.rewards[rows].copy()
            self._begin_next(i)
            b.rewards[rows] = rewards  # a new simulation zeroes its arrays
            self._flags_are_set = True
        self._next_end = min(self._ends)

    def _start(self, index: int, seed: int) -> None:
        """Build the simulation for an episode, which writes the first observation into the buffers."""
        try:
            simulation = MettaGrid(self._config, self._game.map(seed), seed)
            simulation.set_buffers(*self._views[index])
        except RuntimeError as error:
            raise self._explain(index, error) from None
        length = self._game.config.max_steps
        if self._desync and self.buffers.episode[self._rows[index].start] == 0:
            length = 1 + seed % length
        self._ends[index] = self.steps + length
        self._next_end = min(self._next_end, self._ends[index])
        self._steppers[index] = simulation.step

    def _explain(self, i: int, error: RuntimeError) -> Exception:
        """Return a HoldfastError if `error` reports too many tokens; otherwise return `error` unchanged."""
        found = re.search(r"budget exceeded for agent (\d+).*attempted=(\d+)", str(error))
        if not found:
            return error
        agent, tokens = int(found[1]), int(found[2])
        return HoldfastError(
            f"{self.world_spec.name}: agent {agent} of environment {self.env_ids[i]} has {tokens} observation tokens "
            f"at step {self.steps}, more than env.num_tokens={self._game.config.obs.num_tokens}.\n"
            f"Set env.num_tokens={-(-tokens // 50) * 50} or more, or a smaller env.window."
        )

    def close_extras(self, **kwargs: object) -> None:
        """Release the simulations, which reference the arrays (otherwise shared memory cannot be closed)."""
        self._steppers = [_not_started] * len(self.env_ids)
        self._views = []


def _not_started() -> None:
    raise RuntimeError("this world is not started or is closed; call reset() before step()")
