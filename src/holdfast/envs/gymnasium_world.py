"""A world of Gymnasium environments, one slot per environment, with same-step autoreset."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import Any

import gymnasium

from holdfast.envs.closing import close_each
from holdfast.envs.failures import BadValue, describe_error
from holdfast.envs.packages import register_package
from holdfast.envs.picture import rendered
from holdfast.envs.spaces import read_interface
from holdfast.envs.world import Buffers, World
from holdfast.envs.worlds.gym import GymEnv
from holdfast.errors import HoldfastError, SettingsError, printable
from holdfast.spec import WorldSpec


class GymWorld(World):
    """A world of Gymnasium environments. The seed for episode k of environment i is `episode_seed(seed, i, k)`."""

    def __init__(
        self,
        settings: GymEnv,
        env_ids: range,
        buffers: Buffers | None = None,
        make: Callable[[GymEnv], gymnasium.Env] | None = None,
    ):
        make = make or make_env
        self._envs: list[gymnasium.Env] = []
        self._close = partial(close_each, settings.name, env_ids.start, self._envs)
        try:
            for _ in env_ids:
                self._envs.append(make(settings))
            first = self._envs[0]
            interface = read_interface(
                first.observation_space,
                first.action_space,
                settings.name,
                env_ids.start,
                hide=settings.hide,
                action_mask=settings.action_mask,
            )
            self._reader, self._writer, self._masks = interface.reader, interface.writer, interface.masks
            spec = WorldSpec(settings.name, self._reader.spec, interface.actions, 1, interface.saved)
            super().__init__(spec, env_ids, buffers)
        except BaseException:
            self.close()
            raise
        self._spaces = [(env.observation_space, env.action_space) for env in self._envs]
        # `array[row, ...]` is a view even if the row is a single number
        self._obs = [self.buffers.obs[row, ...] for row in range(self.num_slots)]
        self._final_obs = [self.buffers.final_obs[row, ...] for row in range(self.num_slots)]

    def _step(self, envs: range) -> None:
        b = self.buffers
        read, obs_rows, masks = self._reader.read, self._obs, self._masks
        row = envs.start
        actions = self._writer.rows(b.actions[row : envs.stop])
        try:
            for row, action in zip(envs, actions, strict=True):
                returned = self._envs[row].step(action)
                try:
                    obs, reward, terminated, truncated, info = returned
                except (TypeError, ValueError) as error:
                    raise BadValue(f"{_count(returned)} instead of obs, reward, terminated, truncated, info") from error
                try:
                    if isinstance(reward, str) or isinstance(terminated, str) or isinstance(truncated, str):
                        raise TypeError("text")
                    b.rewards[row], b.terminated[row], b.truncated[row] = reward, terminated, truncated
                except (TypeError, ValueError) as error:
                    got = f"reward {reward!r}, terminated {terminated!r}, truncated {truncated!r}"
                    raise BadValue(f"{got} (expected a number and two bools)") from error
                if terminated or truncated:
                    read(obs, self._final_obs[row])
                    if masks is not None:
                        masks.read_final(obs, info, b.final_action_mask[row])
                    self._report(row, info)
                    self._begin_next(row)
                else:
                    read(obs, obs_rows[row])
                    if masks is not None:
                        masks.read(obs, info, b.action_mask[row])
        except (HoldfastError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._failure(row, "step", error) from error

    def _start(self, index: int, seed: int) -> None:
        env = self._envs[index]
        try:
            returned = env.reset(seed=seed)
            try:
                obs, info = returned
            except (TypeError, ValueError) as error:
                raise BadValue(f"{_count(returned)} instead of obs, info") from error
            for before, now in zip(self._spaces[index], (env.observation_space, env.action_space), strict=True):
                if now is not before and spaces_differ(before, now):
                    raise BadValue(f"an episode with the space {now}, after episodes with {before},")
            self._reader.read(obs, self._obs[index])
            if self._masks is not None:
                self._masks.read(obs, info, self.buffers.action_mask[index])
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failure(index, "reset", error) from error

    def picture(self, index: int) -> Any:
        return rendered(self._envs[index])

    def close_extras(self, **kwargs: Any) -> None:
        self._close()


def make_env(settings: GymEnv) -> gymnasium.Env:
    """Create one environment; raise SettingsError if the environment does not exist or cannot be created."""
    env_id = settings.name.removeprefix("gym:")
    if ".py:" in env_id:
        raise SettingsError(f"env={printable(settings.name)}: gym: is not for files. Write env={printable(env_id)}.")
    register_package(settings.name, env_id)
    try:
        return gymnasium.make(env_id, **{"disable_env_checker": True, **settings.kwargs})
    except Exception as error:
        raise cannot_make(settings.name, env_id, error) from error


def _count(returned: Any) -> str:
    """Describe what `step` or `reset` returned instead of a tuple of the right size."""
    return f"{len(returned)} values" if isinstance(returned, tuple) else f"a {type(returned).__name__}"


def spaces_differ(before: gymnasium.Space, now: gymnasium.Space) -> bool:
    """Return whether a policy for one space does not fit the other. Other limits of a Box make no difference."""
    if isinstance(before, gymnasium.spaces.Box) and isinstance(now, gymnasium.spaces.Box):
        return (before.shape, before.dtype) != (now.shape, now.dtype)
    return before != now


def cannot_make(name: str, env_id: str, error: Exception) -> SettingsError:
    """Return the error for an environment that Gymnasium cannot create, with similar names if the name is unknown."""
    short_id = env_id.rpartition(":")[2]
    if isinstance(error, ImportError) or short_id in gymnasium.registry:
        return SettingsError(f"env={name}: creating the environment failed.\n{describe_error(error)}")
    lowered = {known.lower(): known for known in gymnasium.registry}
    near = [lowered[match] for match in get_close_matches(short_id.lower(), lowered, n=3, cutoff=0.5)]
    hint = f"Nearest: {', '.join(near)}." if near else "gymnasium.pprint_registry() lists all environments."
    return SettingsError(f"env={printable(name)}: Gymnasium has no environment {printable(short_id)!r}. {hint}")
