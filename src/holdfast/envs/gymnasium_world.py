"""Gymnasium environments, one slot each, reset in the step that ended them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import gymnasium

from holdfast.config.settings import GymEnv
from holdfast.envs.failures import BadValue, describe_error, environment_error
from holdfast.envs.spaces import action_writer, obs_reader
from holdfast.envs.world import Buffers, World, episode_seed
from holdfast.errors import HoldfastError, SettingsError
from holdfast.spec import WorldSpec


def describe_gym(settings: GymEnv) -> WorldSpec:
    """What policies may know, from one environment that is closed again."""
    env = make_env(settings)
    try:
        return _spec(settings, env)
    finally:
        env.close()


class GymWorld(World):
    """Episode k of environment i starts from `episode_seed(seed, i, k)`: nothing before it matters."""

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
        self._seed = 0
        self._episodes = [0] * self.num_slots

    def _reset(self, seed: int) -> None:
        self._seed = seed
        self._episodes = [-1] * self.num_slots
        for row in range(self.num_slots):
            self._start_episode(row)

    def _step(self) -> None:
        b = self.buffers
        read, obs_rows = self._reader.read, self._obs
        actions = self._writer.write(b.actions)
        row = 0
        try:
            for row, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
                obs, reward, terminated, truncated, _ = env.step(action)
                try:
                    b.rewards[row], b.terminated[row], b.truncated[row] = reward, terminated, truncated
                except (TypeError, ValueError) as error:
                    raise BadValue(
                        f"reward {reward!r}, terminated {terminated!r}, truncated {truncated!r}, "
                        "not a number and two flags,"
                    ) from error
                if terminated or truncated:
                    read(obs, self._final_obs[row])
                    self._start_episode(row)
                else:
                    read(obs, obs_rows[row])
        except HoldfastError:
            raise
        except Exception as error:
            raise environment_error(self.world_spec.name, self._where(row), "step", error) from error

    def _start_episode(self, row: int) -> None:
        self._episodes[row] += 1
        try:
            seed = episode_seed(self._seed, self.env_ids[row], self._episodes[row])
            obs, _ = self._envs[row].reset(seed=seed)
            self._reader.read(obs, self._obs[row])
        except Exception as error:
            raise environment_error(self.world_spec.name, self._where(row), "reset", error) from error

    def _where(self, row: int) -> str:
        return f"environment {self.env_ids[row]} (slot {self.env_ids[row]})"

    def close_extras(self, **kwargs: Any) -> None:
        for env in self._envs:
            env.close()


def make_env(settings: GymEnv) -> gymnasium.Env:
    """One environment with its time limit; SettingsError when there is none or it cannot be made."""
    env_id = settings.name.removeprefix("gym:")
    try:
        return gymnasium.make(env_id, **{"disable_env_checker": True, **settings.kwargs})
    except Exception as error:
        raise cannot_make(settings.name, env_id, error) from error


def cannot_make(name: str, env_id: str, error: Exception) -> SettingsError:
    """Why Gymnasium has not made an environment, with the nearest names when it knows none of this one."""
    short_id = env_id.rpartition(":")[2]
    if isinstance(error, ImportError) or short_id in gymnasium.registry:
        return SettingsError(f"env={name}: the environment cannot be made.\n{describe_error(error)}")
    lowered = {known.lower(): known for known in gymnasium.registry}
    near = [lowered[match] for match in get_close_matches(short_id.lower(), lowered, n=3, cutoff=0.5)]
    hint = f"Nearest: {', '.join(near)}." if near else "gymnasium.pprint_registry() lists those there are."
    return SettingsError(f"env={name}: Gymnasium has no environment {short_id!r}. {hint}")


def _spec(settings: GymEnv, env: gymnasium.Env) -> WorldSpec:
    return WorldSpec(
        name=settings.name,
        obs=obs_reader(env.observation_space, settings.name, settings.hide).spec,
        actions=action_writer(env.action_space, settings.name, 0).spec,
        agents_per_env=1,
    )
