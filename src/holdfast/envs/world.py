"""The world contract: a gymnasium VectorEnv with one row per slot and same-step autoreset.

When a step ends an episode, `obs` is already the first observation of the next episode, and `info["final_obs"]` is the
last observation of the ended episode; so a policy receives every first observation.
If actions are masked, `info["action_mask"]` marks the legal actions for `obs`, after `reset` and after `step`.
`info["valid"]` is false for rows that are not transitions: a NEXT_STEP reset, or an agent that has left the episode.
If a worker failed in a step, the rows of its environments are false in `info["valid"]` and true in `info["lost"]`, and
`obs` is the first observation of a new episode. The end of the lost episode is unknown, so do not learn from the row.
`World.episode_infos` has the numbers that environments reported about the episodes that ended in the last step.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from holdfast.custom_code import end_if_forked, forked_child_ended
from holdfast.envs.episode_info import numbers_in
from holdfast.envs.failures import BadMask, environment_error, numbered
from holdfast.errors import HoldfastError, NonFiniteError, SettingsError
from holdfast.spec import WorldSpec, keys


class ReplayError(HoldfastError):
    """A replayed episode differs from the original."""


@dataclass
class Buffers:
    """Arrays with one row per slot. A world writes them in place, so they may be slices of shared memory."""

    obs: np.ndarray
    final_obs: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    actions: np.ndarray
    episode: np.ndarray  # number of the episode that `obs` belongs to
    action_mask: np.ndarray  # true: legal for `obs`; shape [slots, 0] if the world does not mask actions
    final_action_mask: np.ndarray  # the action mask for `final_obs`

    @staticmethod
    def layout(spec: WorldSpec) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return the shape (without the slot axis) and the dtype of each array."""
        return {
            "obs": (spec.obs.shape, spec.obs.dtype),
            "final_obs": (spec.obs.shape, spec.obs.dtype),
            "rewards": ((), "float32"),
            "terminated": ((), "bool"),
            "truncated": ((), "bool"),
            "valid": ((), "bool"),
            "actions": (spec.actions.shape, spec.actions.dtype),
            "episode": ((), "int64"),
            "action_mask": ((spec.mask_size,), "bool"),
            "final_action_mask": ((spec.mask_size,), "bool"),
        }

    @classmethod
    def allocate(cls, spec: WorldSpec, num_slots: int) -> Buffers:
        return cls(**{name: np.zeros((num_slots, *shape), dtype) for name, (shape, dtype) in cls.layout(spec).items()})


def episode_seed(seed: int, env_index: int, episode: int) -> int:
    """Return the seed for one episode of one environment. The seed does not depend on earlier episodes.

    So results do not depend on the number of workers, and an episode can be replayed without the episodes before it.
    """
    return int(np.random.SeedSequence([seed, env_index, episode]).generate_state(1)[0] >> 1)


@dataclass(frozen=True)
class ReplayPoint:
    """The current episode of each of E environments and the actions taken in it so far.

    An episode depends only on its seed and its actions, so these are enough to replay the episode.
    """

    seed: int
    steps: int  # total number of steps of the world
    episodes: np.ndarray  # [E]
    lengths: np.ndarray  # [E] number of steps taken in the current episode
    actions: np.ndarray  # [sum of lengths, agents, ...] actions in environment 0, then 1, ...

    @classmethod
    def at_episode_start(cls, seed: int, spec: WorldSpec, episodes: np.ndarray, steps: int = 0) -> ReplayPoint:
        """Return the replay point at the start of these episodes [E], without actions to replay."""
        nothing = np.zeros((0, spec.agents_per_env, *spec.actions.shape), spec.actions.dtype)
        return cls(seed, steps, episodes, np.zeros_like(episodes), nothing)

    def of_envs(self, first: int, stop: int) -> ReplayPoint:
        """Return the replay point of environments `first` to `stop - 1`."""
        ends = np.concatenate([[0], self.lengths.cumsum()])
        actions = self.actions[ends[first] : ends[stop]]
        return ReplayPoint(self.seed, self.steps, self.episodes[first:stop], self.lengths[first:stop], actions)

    def per_env(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (episode number, actions [length, agents, ...]) for every environment."""
        pieces = np.split(self.actions, self.lengths.cumsum()[:-1])
        yield from zip(self.episodes.tolist(), pieces, strict=True)


class World(gymnasium.vector.VectorEnv):
    """A set of environments with one slot per agent. Subclasses write `self.buffers`; each step overwrites them.

    `env_ids` are the numbers of these environments in the run. Seeds depend on these numbers, not on the index in this
    world.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  (gymnasium's own declaration)
    replays = True  # an episode can be replayed from its seed and its actions

    def __init__(self, world_spec: WorldSpec, env_ids: range, buffers: Buffers | None = None):
        self.world_spec = world_spec
        self.env_ids = env_ids
        self.num_slots = len(env_ids) * world_spec.agents_per_env
        self.num_envs = self.num_slots  # gymnasium's name for the number of rows
        self._all = range(len(env_ids))
        self.buffers = buffers or Buffers.allocate(world_spec, self.num_slots)
        self.steps = 0
        self.seed = 0
        self.on_replayed: Callable[[], None] = lambda: None  # called after each replayed step
        # (slot of this world, numbers by name) of episodes that ended in the last step and said something in `info`
        self.episode_infos: list[tuple[int, dict[str, float]]] = []
        self.lost: np.ndarray | None = None  # [slots] true: the episode was lost in the last step; None: none was lost

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def reset(  # pyright: ignore[reportIncompatibleMethodOverride]  (a seed is required, for replays)
        self, *, seed: int, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start episode 0 of every environment."""
        fresh = np.zeros(len(self.env_ids), np.int64)
        return self.replay_to(ReplayPoint.at_episode_start(seed, self.world_spec, fresh))

    def replay_to(self, point: ReplayPoint) -> tuple[np.ndarray, dict[str, Any]]:
        """Bring every environment to this replay point by replaying its current episode."""
        self.seed, self.steps = point.seed, point.steps
        b = self.buffers
        with forked_child_ended():
            self._replay_to(point)
        b.rewards[:], b.terminated[:], b.truncated[:], b.valid[:] = 0.0, False, False, True
        self.episode_infos = []
        self._check_finite()
        return b.obs, ({keys.ACTION_MASK: b.action_mask} if b.action_mask.size else {})

    def check_masks(self) -> None:
        """Reset once if actions are masked, and raise SettingsError if the environment returns no valid mask."""
        try:
            if self.world_spec.mask_size:
                self.reset(seed=0)
        except HoldfastError as error:
            if not isinstance(error.__cause__, BadMask):
                raise
            raise SettingsError(
                f"env.action_mask: {self.world_spec.name} returned {error.__cause__} from reset().\n"
                "The environment must return a mask with every observation. If it has no masks: env.action_mask=false."
            ) from error

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        b = self.buffers
        if actions is not b.actions:
            b.actions[:] = actions
        self.steps += 1
        self.episode_infos = []
        process = os.getpid()
        try:
            self._step(self._all)
        finally:
            end_if_forked(process)
        self._check_finite()
        info = {"final_obs": b.final_obs, "valid": b.valid}
        if b.action_mask.size:
            info |= {keys.ACTION_MASK: b.action_mask, "final_action_mask": b.final_action_mask}
        if self.lost is not None:
            info["lost"] = self.lost
        return b.obs, b.rewards, b.terminated, b.truncated, info

    def picture(self, index: int) -> Any:
        """Return what one environment looks like now: an RGB array, a `GridPicture`, or None if it cannot be drawn."""
        return None

    def slots_of(self, index: int) -> slice:
        """Return the slots of the environment with this index in the world."""
        agents = self.world_spec.agents_per_env
        return slice(index * agents, (index + 1) * agents)

    def _replay_to(self, point: ReplayPoint) -> None:
        """Replay the environments one after the other."""
        b = self.buffers
        for index, (episode, actions) in enumerate(point.per_env()):
            slots = self.slots_of(index)
            self.steps = point.steps - len(actions)
            self._begin(index, episode)
            for chosen in actions:
                b.actions[slots] = chosen
                self.steps += 1
                self._step(range(index, index + 1))
                self.on_replayed()
            if b.episode[slots.start] != episode:
                raise ReplayError(
                    f"{self.world_spec.name}: environment {self.env_ids[index]} cannot be replayed: "
                    f"the replayed episode ended within {len(actions)} steps, earlier than the original"
                )
        self.steps = point.steps

    def _begin(self, index: int, episode: int) -> None:
        """Start the given episode of one environment, with the seed from `episode_seed`."""
        self.buffers.episode[self.slots_of(index)] = episode
        self._start(index, episode_seed(self.seed, self.env_ids[index], episode))

    def _begin_next(self, index: int) -> None:
        self._begin(index, int(self.buffers.episode[self.slots_of(index).start]) + 1)

    def _start(self, index: int, seed: int) -> None:
        """Start an episode and write its first observation and action mask into the buffers.

        Worlds that can only start all environments at once override `_replay_to` instead.
        """
        raise NotImplementedError

    @abstractmethod
    def _step(self, envs: range) -> None:
        """Apply `buffers.actions` to the environments with these indices and write the results into the buffers.

        If an episode ends, write `final_obs` and `final_action_mask`, call `_report` and `_begin_next`.
        """

    def _report(self, slot: int, info: Any) -> None:
        """Keep the numbers in the `info` of the step that ended the episode of this slot, for metrics."""
        if numbers := numbers_in(info):
            self.episode_infos.append((slot, numbers))

    def _failure(self, index: int, doing: str, error: BaseException) -> HoldfastError:
        """Return the error to raise if `step` or `reset` of one environment failed."""
        env_id, agents = self.env_ids[index], self.world_spec.agents_per_env
        slots = numbered("slot", range(env_id * agents, (env_id + 1) * agents))
        return environment_error(self.world_spec.name, f"environment {env_id} ({slots})", doing, self.steps, error)

    def _check_finite(self) -> None:
        """Raise NonFiniteError for NaN or Inf in rewards or observations, at the step that produced it."""
        b = self.buffers
        self._refuse_non_finite("reward", b.rewards)
        if b.obs.dtype.kind == "f":
            self._refuse_non_finite("observation", b.obs)
            ended = np.flatnonzero(b.terminated | b.truncated)
            if ended.size:
                self._refuse_non_finite("final observation", b.final_obs[ended], ended)

    def _refuse_non_finite(self, field: str, array: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Raise NonFiniteError for the first NaN or Inf in `array` [R, ...]. `rows` [R]: the slot of each row."""
        if np.isfinite(array).all():
            return
        bad = np.argwhere(~np.isfinite(array))[0]
        parts = getattr(self.world_spec.obs, "parts", ()) if array.ndim == 2 else ()
        field += "".join(f" entry {part.name!r}" for part in parts if part.start <= bad[1] < part.start + part.size)
        row = int(bad[0] if rows is None else rows[bad[0]])
        agents = self.world_spec.agents_per_env
        raise NonFiniteError(
            f"{self.world_spec.name}: {field} of slot {self.env_ids.start * agents + row} "
            f"(environment {self.env_ids[row // agents]}, agent {row % agents}) is {array[tuple(bad)]} "
            f"at step {self.steps}.\n"
            "The environment returned this value. Fix the environment; the step was not used for learning."
        )
