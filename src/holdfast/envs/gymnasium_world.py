"""A world of Gymnasium environments, one slot per environment, with same-step autoreset."""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial
from typing import Any

import gymnasium

from holdfast.envs.closing import close_each
from holdfast.envs.failures import BadValue, describe_error
from holdfast.envs.spaces import MaskReader, action_writer, obs_reader
from holdfast.envs.world import Buffers, World
from holdfast.envs.worlds.gym import GymEnv
from holdfast.errors import HoldfastError, SettingsError, printable
from holdfast.spec import WorldSpec


class GymWorld(World):
    """A world of Gymnasium environments. The seed for episode k of environment i is `episode_seed(seed, i, k)`."""

    def __init__(self, settings: GymEnv, env_ids: range, buffers: Buffers | None = None):
        self._envs: list[gymnasium.Env] = []
        self._close = partial(close_each, settings.name, env_ids.start, self._envs)
        try:
            for _ in env_ids:
                self._envs.append(make_env(settings))
            first = self._envs[0]
            self._reader = obs_reader(first.observation_space, settings.name, settings.hide)
            self._writer = action_writer(first.action_space, settings.name, env_ids.start, settings.action_mask)
            super().__init__(WorldSpec(settings.name, self._reader.spec, self._writer.spec, 1), env_ids, buffers)
        except BaseException:
            self.close()
            raise
        # `array[row, ...]` is a view even if the row is a single number
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
                    got = f"reward {reward!r}, terminated {terminated!r}, truncated {truncated!r}"
                    raise BadValue(f"{got} (expected a number and two bools)") from error
                if terminated or truncated:
                    read(obs, self._final_obs[row])
                    if masks is not None:
                        masks.read_final(info, b.final_action_mask[row])
                    self._report(row, info)
                    self._begin_next(row)
                else:
                    read(obs, obs_rows[row])
                    if masks is not None:
                        masks.read(info, b.action_mask[row])
        except (HoldfastError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._failure(row, "step", error) from error

    def _start(self, index: int, seed: int) -> None:
        try:
            obs, info = self._envs[index].reset(seed=seed)
            self._reader.read(obs, self._obs[index])
            if self._masks is not None:
                self._masks.read(info, self.buffers.action_mask[index])
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failure(index, "reset", error) from error

    def close_extras(self, **kwargs: Any) -> None:
        self._close()


def make_env(settings: GymEnv) -> gymnasium.Env:
    """Create one environment; raise SettingsError if the environment does not exist or cannot be created."""
    env_id = settings.name.removeprefix("gym:")
    try:
        return gymnasium.make(env_id, **{"disable_env_checker": True, **settings.kwargs})
    except Exception as error:
        raise cannot_make(settings.name, env_id, error) from error


def cannot_make(name: str, env_id: str, error: Exception) -> SettingsError:
    """Return the error for an environment that Gymnasium cannot create, with similar names if the name is unknown."""
    short_id = env_id.rpartition(":")[2]
    if isinstance(error, ImportError) or short_id in gymnasium.registry:
        return SettingsError(f"env={name}: creating the environment failed.\n{describe_error(error)}")
    lowered = {known.lower(): known for known in gymnasium.registry}
    near = [lowered[match] for match in get_close_matches(short_id.lower(), lowered, n=3, cutoff=0.5)]
    hint = f"Nearest: {', '.join(near)}." if near else "gymnasium.pprint_registry() lists all environments."
    return SettingsError(f"env={printable(name)}: Gymnasium has no environment {printable(short_id)!r}. {hint}")
