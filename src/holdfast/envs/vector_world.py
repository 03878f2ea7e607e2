"""A world from a Gymnasium vector environment, converted to same-step autoreset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from holdfast.envs.closing import close_each
from holdfast.envs.episode_info import row_of
from holdfast.envs.failures import BadValue, environment_error, numbered
from holdfast.envs.gymnasium_world import cannot_make
from holdfast.envs.packages import register_package
from holdfast.envs.spaces import ActionWriter, obs_reader, save_spaces
from holdfast.envs.world import ReplayError, ReplayPoint, World, episode_seed
from holdfast.envs.worlds.gym import GymVectorEnv
from holdfast.errors import HoldfastError, SettingsError
from holdfast.spec import WorldSpec


def make_vector_world(settings: GymVectorEnv, env_ids: range) -> VectorWorld:
    """Create the vector implementation of an environment; raise SettingsError if that fails."""
    env_id = settings.name.removeprefix("gymvec:")
    register_package(settings.name, env_id)
    try:
        envs = gymnasium.make_vec(env_id, len(env_ids), vectorization_mode="vector_entry_point", **settings.kwargs)
    except Exception as error:
        spec = gymnasium.registry.get(env_id.rpartition(":")[2])
        if spec is not None and spec.vector_entry_point is None:
            raise SettingsError(
                f"env={settings.name}: {spec.id} has no vector implementation. Use env=gym:{env_id}."
            ) from error
        raise cannot_make(settings.name, env_id, error) from error
    try:
        return VectorWorld(envs, settings.name, env_ids, settings.hide)
    except BaseException:
        close_each(settings.name, env_ids.start, [envs])
        raise


class VectorWorld(World):
    """A Gymnasium VectorEnv with any of the three autoreset modes, one slot per environment.

    With NEXT_STEP, the step after the end of an episode ignores the action and returns the first observation of the
    next episode. That row is not valid, and it is marked as truncated so that memory is reset.

    Holdfast seeds only episode 0; later episodes use the random generator of the vector environment.
    """

    replays = False  # a single episode cannot be started

    def __init__(self, envs: VectorEnv, name: str, env_ids: range | None = None, hide: Sequence[int | str] = ()):
        env_ids = range(envs.num_envs) if env_ids is None else env_ids
        self._envs = envs
        self._mode = (envs.metadata or {}).get("autoreset_mode")
        if not isinstance(self._mode, AutoresetMode):
            raise SettingsError(
                f"{name}: metadata['autoreset_mode'] is {self._mode!r}, so it is unknown when environments are reset.\n"
                "Set it to the gymnasium.vector.AutoresetMode that the environment implements."
            )
        self._reader = obs_reader(envs.single_observation_space, name, hide, lead=(envs.num_envs,))
        self._row_reader = obs_reader(envs.single_observation_space, name, hide)
        self._writer = ActionWriter(envs.single_action_space, name, env_ids.start)
        saved = save_spaces(envs.single_observation_space, envs.single_action_space, hide, action_mask=False)
        super().__init__(WorldSpec(name, self._reader.spec, self._writer.spec, 1, saved), env_ids)
        self._restarting = np.zeros(self.num_slots, bool)  # NEXT_STEP: rows that the next step resets
        self._fresh_obs = np.zeros_like(self.buffers.obs)

    def _replay_to(self, point: ReplayPoint) -> None:
        if point.lengths.any() or point.episodes.any():
            raise ReplayError(f"{self.world_spec.name}: a vector environment cannot replay episodes; use env=gym:NAME")
        self._restarting[:] = False
        self.buffers.episode[:] = 0
        try:
            obs, _ = self._envs.reset(seed=episode_seed(point.seed, self.env_ids.start, 0))
            self._reader.read(obs, self.buffers.obs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._explain("reset", error) from error

    def _step(self, envs: range) -> None:
        b = self.buffers
        actions = self._writer.write(b.actions)
        try:
            obs, rewards, terminated, truncated, info = self._envs.step(actions)
            for array, values in ((b.rewards, rewards), (b.terminated, terminated), (b.truncated, truncated)):
                if np.shape(values) != array.shape:
                    raise BadValue(f"rewards or flags of shape {np.shape(values)}, expected {array.shape},")
                array[:] = values
            self._reader.read(obs, b.obs)
            ended = b.terminated | b.truncated
            for row in np.flatnonzero(ended).tolist():
                self._report(row, self._final_info(info, row))
            self._restart(ended, info)
            b.episode += ended
        except (HoldfastError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._explain("step", error) from error

    def _restart(self, ended: np.ndarray, info: dict[str, Any]) -> None:
        """Apply same-step autoreset to the rows where `ended` [N] is true. On entry, `buffers.obs` holds what step() returned."""
        b = self.buffers
        if self._mode is AutoresetMode.NEXT_STEP:
            junk = self._restarting
            b.rewards[junk], b.terminated[junk], b.truncated[junk] = 0.0, False, True
            b.valid[:] = ~junk
            self._restarting = ended & ~junk
            b.final_obs[self._restarting] = b.obs[self._restarting]
        elif not ended.any():
            return
        elif self._mode is AutoresetMode.SAME_STEP:
            for row in np.flatnonzero(ended).tolist():
                self._row_reader.read(_final_obs(info, row), b.final_obs[row, ...])
        else:
            b.final_obs[ended] = b.obs[ended]
            obs, _ = self._envs.reset(options={"reset_mask": ended})
            self._reader.read(obs, self._fresh_obs)
            b.obs[ended] = self._fresh_obs[ended]

    def _final_info(self, info: dict[str, Any], row: int) -> Any:
        """Return the info of the step that ended the episode in `row`; with SAME_STEP, `info` itself is of the reset."""
        if self._mode is not AutoresetMode.SAME_STEP:
            return row_of(info, row)
        return row_of(info, row).get("final_info")

    def _explain(self, doing: str, error: BaseException) -> HoldfastError:
        where = numbered("environment", self.env_ids)
        return environment_error(self.world_spec.name, where, doing, self.steps, error)

    def close_extras(self, **kwargs: Any) -> None:
        close_each(self.world_spec.name, self.env_ids.start, [self._envs])


def _final_obs(info: dict[str, Any], row: int) -> Any:
    """Return the last observation of the episode that ended in `row`."""
    if "final_obs" not in info:
        raise BadValue("no info['final_obs'] at the end of an episode, although the autoreset mode is SAME_STEP,")
    return _row_of(info["final_obs"], row)


def _row_of(batch: Any, row: int) -> Any:
    """Return one row of a batch of observations: of every array in Dicts and Tuples."""
    if isinstance(batch, dict):
        return {key: _row_of(values, row) for key, values in batch.items()}
    return tuple(_row_of(values, row) for values in batch) if isinstance(batch, tuple) else batch[row]
