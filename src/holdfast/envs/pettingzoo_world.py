"""A world of PettingZoo environments, with one slot per agent, in the order of `possible_agents`."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

from holdfast.envs.aec import to_parallel
from holdfast.envs.closing import close_each
from holdfast.envs.failures import BadMask, BadValue, describe_error
from holdfast.envs.gymnasium_world import spaces_differ
from holdfast.envs.picture import rendered
from holdfast.envs.spaces import read_interface
from holdfast.envs.world import Buffers, World
from holdfast.envs.worlds.gym import GymEnv
from holdfast.envs.worlds.pettingzoo import PettingZooEnv
from holdfast.errors import HoldfastError, SettingsError, printable
from holdfast.spec import WorldSpec


class PettingZooWorld(World):
    """A world of PettingZoo parallel environments, with one slot per agent.

    An environment is reset when its last agent has left. Until then, the slots of agents that left earlier wait, and
    their rows are not valid. The end of an agent's episode is reported once, in the step in which the agent leaves. The
    row with the first observation of the agent's next episode is marked as truncated, so that memory is reset.
    """

    def __init__(
        self,
        settings: PettingZooEnv | GymEnv,
        env_ids: range,
        buffers: Buffers | None = None,
        make: Callable[[Any], Any] | None = None,
    ):
        make = make or make_env
        self._envs: list[Any] = []
        self._close = partial(close_each, settings.name, env_ids.start, self._envs)
        try:
            for _ in env_ids:
                self._envs.append(to_parallel(make(settings), bool(settings.action_mask)))
            env, name = self._envs[0], settings.name
            self._agents = _checked_agents(env, name)
            first, count = self._agents[0], len(self._agents)
            masked = settings.action_mask
            if masked is None and getattr(env, "masks_actions", False):
                masked = True
            interface = read_interface(
                env.observation_space(first),
                env.action_space(first),
                name,
                env_ids.start * count,
                hide=settings.hide,
                action_mask=masked,
                idle=True,
            )
            self._reader, self._writer, self._masks = interface.reader, interface.writer, interface.masks
            spec = WorldSpec(name, self._reader.spec, interface.actions, count, interface.saved)
            super().__init__(spec, env_ids, buffers)
        except BaseException:
            self.close()
            raise
        self._spaces = env.observation_space(first), env.action_space(first)
        self._present = [False] * self.num_slots  # [slots] true: the agent of this slot acts in the next step

    def _step(self, envs: range) -> None:
        first, stop = self.slots_of(envs.start).start, self.slots_of(envs.stop - 1).stop
        actions = dict(enumerate(self._writer.rows(self.buffers.actions[first:stop]), first))
        for index in envs:
            try:
                self._step_env(index, actions)
            except (HoldfastError, KeyboardInterrupt):
                raise
            except BaseException as error:
                raise self._failure(index, "step", error) from error
            slots = self.slots_of(index)
            if not any(self._present[slots]):  # start the next episode for all slots, even those that waited
                self.buffers.truncated[slots] |= ~self.buffers.valid[slots]
                self._begin_next(index)

    def _step_env(self, index: int, actions: dict[int, Any]) -> None:
        b, env = self.buffers, self._envs[index]
        slots = list(enumerate(self._agents, self.slots_of(index).start))
        acting = {agent: actions[slot] for slot, agent in slots if self._present[slot]}
        obs, rewards, terminated, truncated, infos = env.step(acting)
        listed = set(env.agents)
        for slot, agent in slots:
            ended, cut = bool(terminated.get(agent)), bool(truncated.get(agent))
            stays = agent in listed and not ended and not cut
            if agent in acting:
                reward = _of(rewards, agent, "reward")
                try:
                    b.rewards[slot] = reward
                except (TypeError, ValueError) as error:
                    raise BadValue(f"reward {reward!r} for {agent!r} (expected a number)") from error
                b.terminated[slot], b.truncated[slot] = ended, cut or not (stays or ended)
                b.valid[slot] = True
                self._reader.read(_of(obs, agent, "observation"), b.obs[slot, ...])
                if not stays:
                    b.final_obs[slot] = b.obs[slot]
            else:
                stays = stays and agent in obs  # the agent returned or joined late
                b.rewards[slot], b.terminated[slot], b.truncated[slot] = 0.0, False, stays
                b.valid[slot] = False
                if stays:
                    self._reader.read(obs[agent], b.obs[slot, ...])
            self._present[slot] = stays
            if agent in acting and not stays:
                self._read_mask(obs, infos, agent, slot, final=True)
                self._report(slot, infos.get(agent) if isinstance(infos, Mapping) else None)
            self._read_mask(obs, infos, agent, slot)

    def _start(self, index: int, seed: int) -> None:
        try:
            env, first = self._envs[index], self._agents[0]
            obs, infos = env.reset(seed=seed)
            for before, now in zip(self._spaces, (env.observation_space(first), env.action_space(first)), strict=True):
                if now is not before and spaces_differ(before, now):
                    raise BadValue(f"an episode with the space {now}, after episodes with {before},")
            if not any(agent in obs for agent in self._agents):
                raise BadValue("no observation for any agent")
            for slot, agent in enumerate(self._agents, self.slots_of(index).start):
                self._present[slot] = agent in obs
                if agent in obs:
                    self._reader.read(obs[agent], self.buffers.obs[slot, ...])
                else:
                    self.buffers.obs[slot] = 0
                self._read_mask(obs, infos, agent, slot)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failure(index, "reset", error) from error

    def _read_mask(self, obs: Any, infos: Any, agent: Any, slot: int, final: bool = False) -> None:
        """Read an agent's action mask (final: for the last observation). The mask of a waiting slot is all true."""
        if self._masks is None:
            return
        try:
            if final:
                self._masks.read_final(obs.get(agent), infos.get(agent, {}), self.buffers.final_action_mask[slot])
            elif self._present[slot]:
                self._masks.read(obs.get(agent), infos.get(agent, {}), self.buffers.action_mask[slot])
            else:
                self.buffers.action_mask[slot] = True
        except BadMask as error:
            number = self.env_ids.start * len(self._agents) + slot
            raise BadMask(f"for {agent!r} (slot {number}) {error}") from error

    def picture(self, index: int) -> Any:
        return rendered(self._envs[index])

    def close_extras(self, **kwargs: Any) -> None:
        self._close()


def make_env(settings: PettingZooEnv | GymEnv) -> Any:
    """Create an environment by `parallel_env(**kwargs)` or `env(**kwargs)` of the module; raise SettingsError if that fails."""
    module_name = settings.name.removeprefix("pettingzoo:")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise SettingsError(
            f"env={printable(settings.name)}: the module {printable(module_name)!r} cannot be imported."
            f"{_nearest(module_name)}\n"
            f"{describe_error(error)}{_how_to_install(error)}"
        ) from error
    make = getattr(module, "parallel_env", None) or getattr(module, "env", None)
    if not callable(make):
        raise SettingsError(
            f"env={settings.name}: the module {module_name!r} has neither parallel_env() nor env(). Name the module of one "
            "environment, such as mpe2.simple_spread_v3."
        )
    try:
        return make(**settings.kwargs)
    except Exception as error:
        raise SettingsError(
            f"env={settings.name}: creating the environment failed.\n{describe_error(error)}"
        ) from error


def _how_to_install(error: Exception) -> str:
    """Return a line with the command that installs the package that an import did not find; "" if it is installed."""
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not package or importlib.util.find_spec(package):
        return ""
    return f"\n{package} is not installed. If its package has the same name: pip install {package}"


def _nearest(module_name: str) -> str:
    """Return a sentence that lists modules with similar names in the same package; "" if there are none."""
    package_name, _, name = module_name.rpartition(".")
    try:
        package = importlib.import_module(package_name)
        known = [module.name for module in pkgutil.iter_modules(package.__path__)]
    except Exception:
        return ""
    near = [] if name in known else get_close_matches(name, known, n=3, cutoff=0.5)
    return f" Nearest: {', '.join(f'{package_name}.{match}' for match in near)}." if near else ""


def _checked_agents(env: Any, world: str) -> list[Any]:
    """Return the possible agents; raise SettingsError if the list is empty or the agents have different spaces."""
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        raise SettingsError(
            f"{world} has no possible_agents. Define them in the environment: each possible agent gets a slot."
        )
    first = agents[0]
    for agent in agents[1:]:
        for kind, space_of in (("observation", env.observation_space), ("action", env.action_space)):
            if space_of(agent) != space_of(first):
                raise SettingsError(
                    f"{world}: {first} and {agent} have different {kind} spaces: {space_of(first)} "
                    f"and {space_of(agent)}.\nOne policy controls all agents, so their spaces must be equal."
                )
    return agents


def _of(values: Any, agent: Any, what: str) -> Any:
    try:
        return values[agent]
    except KeyError:
        raise BadValue(f"no {what} for {agent!r}, which acted,") from None
