"""Gymnasium environments, one slot each, with same-step autoreset."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import gymnasium
import numpy as np

from holdfast.envs.failures import BadValue, describe_error, environment_error
from holdfast.envs.masks import MaskReader, refused_mask, with_masks
from holdfast.envs.spaces import action_writer, obs_reader
from holdfast.envs.world import Buffers, World
from holdfast.envs.worlds.gym import GymEnv
from holdfast.errors import HoldfastError, SettingsError
from holdfast.spec import WorldSpec


def describe_gym(settings: GymEnv) -> WorldSpec:
    """The spec of the world, from one environment that is closed again."""
    env = make_env(settings)
    try:
        spec = _spec(settings, env)
        if settings.action_mask:
            _try_mask(spec, env)
        return spec
    finally:
        env.close()


class GymWorld(World):
    """Episode k of environment i is seeded with `episode_seed(seed, i, k)`, independent of earlier episodes."""

    def __init__(self, settings: GymEnv, env_ids: range, buffers: Buffers | None = None):
        self._envs: list[gymnasium.Env] = []
        try:
            for _ in env_ids:
                self._envs.append(make_env(settings))
            super().__init__(_spec(settings, self._envs[0]), env_ids, buffers)
        except BaseException:
            self.close()
            raise
        first = self._envs[0]
        self._reader = obs_reader(first.observation_space, settings.name, settings.hide)
        self._writer = action_writer(first.action_space, settings.name, env_ids.start)
        # `array[row, ...]` is a view even where a row is a single number
        self._obs = [self.buffers.obs[row, ...] for row in range(self.num_slots)]
        self._final_obs = [self.buffers.final_obs[row, ...] for row in range(self.num_slots)]
        self._masks = MaskReader(self.world_spec.actions.mask_sizes) if settings.action_mask else None

    def _step(self, envs: range) -> None:
        b = self.buffers
        read, obs_rows, masks = self._reader.read, self._obs, self._masks
        row = envs.start
        actions = self._writer.write(b.actions[row : envs.stop])
        try:
            for row, action in zip(envs, actions, strict=True):
                obs, reward, terminated, truncated, info = self._envs[row].step(action)
                try:
                    b.rewards[row], b.terminated[row], b.truncated[row] = reward, terminated, truncated
                except (TypeError, ValueError) as error:
                    raise BadValue(
                        f"reward {reward!r}, terminated {terminated!r}, truncated {truncated!r}, "
                        "not a number and two flags,"
                    ) from error
                if terminated or truncated:
                    read(obs, self._final_obs[row])
                    if masks is not None:
                        masks.read_final(info, b.final_action_mask[row])
                    self._begin_next(row)
                else:
                    read(obs, obs_rows[row])
                    if masks is not None:
                        masks.read(info, b.action_mask[row])
        except HoldfastError:
            raise
        except (Exception, SystemExit) as error:
            raise environment_error(self.world_spec.name, self._where(row), "step", self.steps, error) from error

    def _start(self, index: int, seed: int) -> None:
        try:
            obs, info = self._envs[index].reset(seed=seed)
            self._reader.read(obs, self._obs[index])
            if self._masks is not None:
                self._masks.read(info, self.buffers.action_mask[index])
        except (Exception, SystemExit) as error:
            raise environment_error(self.world_spec.name, self._where(index), "reset", self.steps, error) from error

    def _where(self, row: int) -> str:
        return f"environment {self.env_ids[row]} (slot {self.env_ids[row]})"

    def close_extras(self, **kwargs: Any) -> None:
        for env in self._envs:
            env.close()


def make_env(settings: GymEnv) -> gymnasium.Env:
    """One environment; SettingsError if it does not exist or cannot be created."""
    env_id = settings.name.removeprefix("gym:")
    try:
        return gymnasium.make(env_id, **{"disable_env_checker": True, **settings.kwargs})
    except Exception as error:
        raise cannot_make(settings.name, env_id, error) from error


def cannot_make(name: str, env_id: str, error: Exception) -> SettingsError:
    """The error for an environment that Gymnasium cannot create, with the nearest names if the name is unknown."""
    short_id = env_id.rpartition(":")[2]
    if isinstance(error, ImportError) or short_id in gymnasium.registry:
        return SettingsError(f"env={name}: creating the environment failed.\n{describe_error(error)}")
    lowered = {known.lower(): known for known in gymnasium.registry}
    near = [lowered[match] for match in get_close_matches(short_id.lower(), lowered, n=3, cutoff=0.5)]
    hint = f"Nearest: {', '.join(near)}." if near else "gymnasium.pprint_registry() lists all."
    return SettingsError(f"env={name}: Gymnasium has no environment {short_id!r}. {hint}")


def _spec(settings: GymEnv, env: gymnasium.Env) -> WorldSpec:
    actions = action_writer(env.action_space, settings.name, 0).spec
    return WorldSpec(
        name=settings.name,
        obs=obs_reader(env.observation_space, settings.name, settings.hide).spec,
        actions=with_masks(actions, settings.name) if settings.action_mask else actions,
        agents_per_env=1,
    )


def _try_mask(spec: WorldSpec, env: gymnasium.Env) -> None:
    """Reset once, to refuse an environment without masks before a run starts."""
    try:
        _, info = env.reset(seed=0)
        MaskReader(spec.actions.mask_sizes).read(info, np.zeros(spec.mask_size, bool))
    except BadValue as error:
        raise refused_mask(spec.name, error) from error
    except Exception as error:
        raise environment_error(spec.name, "environment 0 (slot 0)", "reset", 0, error) from error
