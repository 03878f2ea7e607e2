"""PettingZoo parallel environments: one slot per possible agent, in the order of `possible_agents`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import numpy as np

from holdfast.envs.failures import BadValue, describe_error, environment_error, numbered
from holdfast.envs.masks import MaskReader, refused_mask, with_masks
from holdfast.envs.spaces import action_writer, obs_reader
from holdfast.envs.world import Buffers, World
from holdfast.envs.worlds.pettingzoo import PettingZooEnv
from holdfast.errors import HoldfastError, SettingsError
from holdfast.spec import WorldSpec


def describe_pettingzoo(settings: PettingZooEnv) -> WorldSpec:
    """The spec of the world, from one environment that is closed again."""
    env = make_env(settings)
    try:
        spec = _spec(settings, env)
        if settings.action_mask:
            _try_masks(spec, env)
        return spec
    finally:
        env.close()


class PettingZooWorld(World):
    """An environment restarts when its last agent has left; until then the slots of agents that left wait.

    Rows of a waiting slot are not valid. The end of its agent is reported once, in the step it left. The row with its
    next first observation is marked as truncated, so its memory is reset.
    """

    def __init__(self, settings: PettingZooEnv, env_ids: range, buffers: Buffers | None = None):
        self._envs: list[Any] = []
        try:
            for _ in env_ids:
                self._envs.append(make_env(settings))
            super().__init__(_spec(settings, self._envs[0]), env_ids, buffers)
        except BaseException:
            self.close()
            raise
        first = self._envs[0]
        self._agents = list(first.possible_agents)
        first_slot = env_ids.start * len(self._agents)
        self._reader = obs_reader(first.observation_space(self._agents[0]), settings.name)
        self._writer = action_writer(first.action_space(self._agents[0]), settings.name, first_slot)
        self._masks = MaskReader(self.world_spec.actions.mask_sizes) if settings.action_mask else None
        self._present = [False] * self.num_slots  # the slot's agent acts in the next step

    def _step(self, envs: range) -> None:
        slots = slice(self.slots_of(envs.start).start, self.slots_of(envs.stop - 1).stop)
        actions = dict(
            zip(range(slots.start, slots.stop), self._writer.write(self.buffers.actions[slots]), strict=True)
        )
        for index in envs:
            try:
                self._step_env(index, actions)
            except HoldfastError:
                raise
            except (Exception, SystemExit) as error:
                raise self._failure(index, "step", error) from error
            if not any(self._present[slot] for slot in self._slots(index)):
                self._restart(index)

    def _step_env(self, index: int, actions: dict[int, Any]) -> None:
        b, env = self.buffers, self._envs[index]
        slots = self._slots(index)
        acting = {agent: actions[slot] for agent, slot in zip(self._agents, slots, strict=True) if self._present[slot]}
        obs, rewards, terminated, truncated, infos = env.step(acting)
        listed = set(env.agents)
        for agent, slot in zip(self._agents, slots, strict=True):
            ended, cut = bool(terminated.get(agent)), bool(truncated.get(agent))
            stays = agent in listed and not ended and not cut
            if agent in acting:
                reward = _of(rewards, agent, "reward")
                try:
                    b.rewards[slot] = reward
                except (TypeError, ValueError) as error:
                    raise BadValue(f"reward {reward!r} for {agent!r}, not a number,") from error
                b.terminated[slot], b.truncated[slot] = ended, cut or not (stays or ended)
                b.valid[slot] = True
                self._reader.read(_of(obs, agent, "observation"), b.obs[slot, ...])
                if not stays:
                    b.final_obs[slot] = b.obs[slot]
            else:
                stays = stays and agent in obs  # it came back or joined late
                b.rewards[slot], b.terminated[slot], b.truncated[slot] = 0.0, False, stays
                b.valid[slot] = False
                if stays:
                    self._reader.read(obs[agent], b.obs[slot, ...])
            self._present[slot] = stays
            if self._masks is not None:
                if agent in acting and not stays:
                    self._read_mask(self._masks.read_final, infos, agent, slot, b.final_action_mask)
                self._read_present_mask(infos, agent, slot)

    def _restart(self, index: int) -> None:
        """Start the next episode in the step in which the last agent left, also for waiting slots."""
        b = self.buffers
        for slot in self._slots(index):
            b.truncated[slot] |= not b.valid[slot]
        self._begin_next(index)

    def _start(self, index: int, seed: int) -> None:
        try:
            obs, infos = self._envs[index].reset(seed=seed)
            if not any(agent in obs for agent in self._agents):
                raise BadValue("no observation for any agent")
            for agent, slot in zip(self._agents, self._slots(index), strict=True):
                self._present[slot] = agent in obs
                if agent in obs:
                    self._reader.read(obs[agent], self.buffers.obs[slot, ...])
                else:
                    self.buffers.obs[slot] = 0
                self._read_present_mask(infos, agent, slot)
        except (Exception, SystemExit) as error:
            raise self._failure(index, "reset", error) from error

    def _read_present_mask(self, infos: Any, agent: Any, slot: int) -> None:
        """Read the mask of an agent that acts next. Everything is legal for a waiting slot: its actions are ignored."""
        if self._masks is None:
            return
        if self._present[slot]:
            self._read_mask(self._masks.read, infos, agent, slot, self.buffers.action_mask)
        else:
            self.buffers.action_mask[slot] = True

    def _read_mask(self, read: Callable[..., None], infos: Any, agent: Any, slot: int, masks: np.ndarray) -> None:
        try:
            read(infos.get(agent, {}), masks[slot])
        except BadValue as error:
            number = self.env_ids.start * len(self._agents) + slot
            raise BadValue(f"for {agent!r} (slot {number}) {error}") from error

    def _slots(self, index: int) -> range:
        slots = self.slots_of(index)
        return range(slots.start, slots.stop)

    def _failure(self, index: int, doing: str, error: BaseException) -> HoldfastError:
        env_id, count = self.env_ids[index], len(self._agents)
        slots = range(env_id * count, (env_id + 1) * count)
        where = f"environment {env_id} ({numbered('slot', slots)})"
        return environment_error(self.world_spec.name, where, doing, self.steps, error)

    def close_extras(self, **kwargs: Any) -> None:
        for env in self._envs:
            env.close()


def make_env(settings: PettingZooEnv) -> Any:
    """`parallel_env(**kwargs)` of the named module; SettingsError if it does not exist or cannot be created."""
    module_name = settings.name.removeprefix("pettingzoo:")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise SettingsError(
            f"env={settings.name}: the module {module_name!r} cannot be imported.{_nearest(module_name)}\n"
            f"{describe_error(error)}"
        ) from error
    if not hasattr(module, "parallel_env"):
        raise SettingsError(
            f"env={settings.name}: the module {module_name!r} has no parallel_env(). Turn-based (AEC) "
            "environments are not supported."
        )
    try:
        return module.parallel_env(**settings.kwargs)
    except Exception as error:
        raise SettingsError(
            f"env={settings.name}: creating the environment failed.\n{describe_error(error)}"
        ) from error


def _nearest(module_name: str) -> str:
    """A sentence with modules of similar names in the same package."""
    package_name, _, name = module_name.rpartition(".")
    try:
        package = importlib.import_module(package_name)
        known = [module.name for module in pkgutil.iter_modules(package.__path__)]
    except Exception:
        return ""
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    return f" Nearest: {', '.join(f'{package_name}.{match}' for match in near)}." if near else ""


def _spec(settings: PettingZooEnv, env: Any) -> WorldSpec:
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        raise SettingsError(f"{settings.name} has no possible_agents, which define the slots.")
    first = agents[0]
    for agent in agents[1:]:
        for kind, space_of in (("observation", env.observation_space), ("action", env.action_space)):
            if space_of(agent) != space_of(first):
                raise SettingsError(
                    f"{settings.name}: {first} and {agent} have different {kind} spaces: {space_of(first)} "
                    f"and {space_of(agent)}.\nOne policy plays all agents, so their spaces must be equal."
                )
    actions = action_writer(env.action_space(first), settings.name, 0).spec
    return WorldSpec(
        name=settings.name,
        obs=obs_reader(env.observation_space(first), settings.name).spec,
        actions=with_masks(actions, settings.name) if settings.action_mask else actions,
        agents_per_env=len(agents),
    )


def _try_masks(spec: WorldSpec, env: Any) -> None:
    """Reset once, to refuse an environment without masks before a run starts."""
    masks, mask = MaskReader(spec.actions.mask_sizes), np.zeros(spec.mask_size, bool)
    agent: Any = None
    try:
        obs, infos = env.reset(seed=0)
        for agent in obs:
            masks.read(infos.get(agent, {}), mask)
    except BadValue as error:
        raise refused_mask(spec.name, BadValue(f"for {agent!r} {error}")) from error
    except Exception as error:
        raise environment_error(spec.name, "environment 0", "reset", 0, error) from error


def _of(values: Any, agent: Any, what: str) -> Any:
    try:
        return values[agent]
    except KeyError:
        raise BadValue(f"no {what} for {agent!r}, which acted,") from None
