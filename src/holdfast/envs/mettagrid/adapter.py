"""A world of MettaGrid simulations. MettaGrid's C++ code writes observations and rewards directly into the buffers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from holdfast.envs.failures import describe_error
from holdfast.envs.mettagrid.api import MettaGrid, convert_to_cpp_game_config, dtype_actions, rename_map_agents
from holdfast.envs.mettagrid.features import global_ids
from holdfast.envs.mettagrid.game import Game, MettaGridEnv
from holdfast.envs.picture import GridObject, GridPicture
from holdfast.envs.world import Buffers, World
from holdfast.errors import HoldfastError, SettingsError, name_some, place_of
from holdfast.spec import WorldSpec

NEVER = 2**62  # step at which an episode without a limit ends

_open: WeakSet[MettaGridWorld] = WeakSet()  # the worlds of this process that share MettaGrid's global feature ids


class Rules(NamedTuple):
    """What a game's configuration is converted to."""

    config: Any  # of MettaGrid's C++ code
    agent_names: dict[str, list[str]]  # cells to rename before a map is used
    length: int  # steps per episode
    end_at: dict[str, float]  # statistics of the game that end the episode when they reach these values


class MettaGridWorld(World):
    """One MettaGrid simulation per environment. All its agents start and end together."""

    def __init__(self, settings: MettaGridEnv, env_ids: range, buffers: Buffers | None = None):
        self._settings, self._games = settings, settings.games()
        game = self._games(env_ids.start, 0, 0)
        self.global_ids = global_ids(game.config)
        super().__init__(settings.spec_of(game), env_ids, buffers)
        self._refuse_other_ids()
        self._desync = getattr(settings, "desync", False)
        # Converting the configuration is most of the cost of a new simulation (0.7 to 6 ms), so do it once per game.
        self._rules: WeakKeyDictionary[Game, Rules] = WeakKeyDictionary()
        b = self.buffers
        if not (b.obs.flags.c_contiguous and b.rewards.flags.c_contiguous):
            raise ValueError(
                "buffers.obs and buffers.rewards must be C-contiguous; otherwise MettaGrid would write into copies"
            )

        # MettaGrid takes changes of vibe in an array of their own. In its numbering they follow all other actions.
        names = getattr(self.world_spec.actions, "names", ())
        self._first_vibe = sum(not name.startswith("change_vibe_") for name in names)
        self._has_vibes = self._first_vibe < len(names)
        self._actions, self._vibes = (np.zeros(self.num_slots, dtype_actions) for _ in range(2))
        self._terminals = np.zeros(self.num_slots, bool)
        self._rows = [self.slots_of(i) for i in range(len(env_ids))]
        arrays = (b.obs, self._terminals, np.zeros(self.num_slots, bool), b.rewards, self._actions, self._vibes)
        self._views: list[Any] = [tuple(array[rows] for array in arrays) for rows in self._rows]
        self._simulations: list[Any] = [None] * len(env_ids)
        self._steppers: list[Callable[[], None]] = [_not_started] * len(env_ids)  # MettaGrid.step of each simulation
        self._ends = [0] * len(env_ids)
        self._next_end = 0  # no episode ends before this step
        self._ends_at: dict[int, dict[str, float]] = {}  # environments whose episodes may end earlier: Rules.end_at
        self._flags_are_set = False

    def _step(self, envs: range) -> None:
        if self._flags_are_set:
            self.buffers.terminated[:] = False
            self.buffers.truncated[:] = False
            self._flags_are_set = False
        slots = slice(self._rows[envs.start].start, self._rows[envs.stop - 1].stop)
        np.copyto(self._actions[slots], self.buffers.actions[slots], casting="same_kind")
        if self._has_vibes:
            self._split_vibes(slots)
        i, steppers = envs.start, self._steppers
        try:
            for i in envs:
                steppers[i]()
        except RuntimeError as error:
            raise self._explain(i, error) or error from None
        if self._ends_at:
            self._look_for_ends(envs)
        if self.steps >= self._next_end:
            self._end_episodes(envs)

    def _split_vibes(self, slots: slice) -> None:
        """Move changes of vibe to their own array. An agent that changes its vibe does nothing else: action 0, noop."""
        actions, vibes = self._actions[slots], self._vibes[slots]
        vibes[:] = np.where(actions >= self._first_vibe, actions, 0)
        actions[actions >= self._first_vibe] = 0

    def _look_for_ends(self, envs: range) -> None:
        """Find episodes that end because a statistic reached its value. MettaGrid leaves this to the caller of C++."""
        for i in envs:
            for name, least in self._ends_at.get(i, {}).items():
                value = self._simulations[i].get_game_stat(name)
                if value is not None and value >= least:
                    self._ends[i] = self._next_end = self.steps

    def _end_episodes(self, envs: range) -> None:
        """Save the final observations and flags of ended episodes, then start the next episodes in the same rows."""
        b = self.buffers
        for i in envs:
            if self._ends[i] != self.steps:
                continue
            rows = self._rows[i]
            b.final_obs[rows] = b.obs[rows]
            b.terminated[rows] = self._terminals[rows]
            b.truncated[rows] = ~self._terminals[rows]  # a limit, or the first episode cut short by env.desync
            self._report(rows.start, _statistics(self._simulations[i]))
            rewards = b.rewards[rows].copy()
            self._begin_next(i)
            b.rewards[rows] = rewards  # a new simulation zeroes its arrays
            self._flags_are_set = True
        self._next_end = min(self._ends)

    def _start(self, index: int, seed: int) -> None:
        """Build the simulation for an episode, which writes the first observation into the buffers."""
        episode = int(self.buffers.episode[self._rows[index].start])
        try:
            game = self._games(self.env_ids[index], episode, seed)
            rules = self._rules.get(game) or self._convert(game, index, episode)
            cells = game.map(seed)
            if rules.agent_names:
                cells = rename_map_agents(cells, rules.agent_names)
            simulation = MettaGrid(rules.config, cells, seed)
            simulation.set_buffers(*self._views[index])
        except HoldfastError:
            raise
        except Exception as error:
            raise self._explain(index, error) or HoldfastError(
                f"{self.world_spec.name}: episode {episode} of environment {self.env_ids[index]} cannot start: "
                f"{describe_error(error)}{place_of(error)}"
            ) from error
        length = rules.length
        if self._cut_short(game) and episode == 0 and length < NEVER:
            length = 1 + seed % length
        self._ends[index] = self.steps + length
        self._next_end = min(self._next_end, self._ends[index])
        self._simulations[index], self._steppers[index] = simulation, simulation.step
        if rules.end_at:
            self._ends_at[index] = rules.end_at
        else:
            self._ends_at.pop(index, None)

    def _cut_short(self, game: Game) -> bool:
        """Return whether the first episode ends at a random step. None: as the game's configuration says."""
        return getattr(game, "desync", False) if self._desync is None else self._desync

    def _convert(self, game: Game, index: int, episode: int) -> Rules:
        """Convert a game's configuration; raise SettingsError if its observations or actions are not this world's."""
        spec, config = self._settings.spec_of(game), game.config
        if difference := _difference(self.world_spec, spec):
            raise SettingsError(
                f"env={spec.name}: episode {episode} of environment {self.env_ids[index]} has {difference}.\n"
                "All episodes must have the same. If objects or resources come later, list their tags (type:NAME) in "
                "game.tags and the resources in game.resource_names from the start."
            )
        # MettaGrid writes into the configuration that it converts
        converted, agent_names = convert_to_cpp_game_config(config.model_copy())
        rules = Rules(converted, agent_names, config.max_steps or NEVER, dict(config.end_episode_on_game_stats))
        self._rules[game] = rules
        return rules

    def _refuse_other_ids(self) -> None:
        """Raise SettingsError if an open world needs other global ids: MettaGrid would mix up or drop its tokens."""
        for world in _open:
            if world.global_ids != self.global_ids:
                names = ", ".join(sorted({name for name, _ in world.global_ids.items() ^ self.global_ids.items()}))
                raise SettingsError(
                    f"env={self.world_spec.name} and env={world.world_spec.name} cannot be open in one process, because "
                    f"MettaGrid has one id per process for these features, and theirs differ: {names}.\n"
                    "Close the first world, or use another process."
                )
        _open.add(self)

    def _explain(self, i: int, error: Exception) -> HoldfastError | None:
        """Return the error to raise if `error` reports too many tokens, else None."""
        found = re.search(r"budget exceeded for agent (\d+).*attempted=(\d+)", str(error))
        if not found:
            return None
        agent, tokens = int(found[1]), int(found[2])
        prefix = "env" if "num_tokens" in type(self._settings).model_fields else "game.obs"
        window = "env.window" if prefix == "env" else "window"
        return HoldfastError(
            f"{self.world_spec.name}: agent {agent} of environment {self.env_ids[i]} has {tokens} observation tokens "
            f"at step {self.steps}, more than {prefix}.num_tokens={self.buffers.obs.shape[1]}.\n"
            f"Set {prefix}.num_tokens={-(-tokens // 50) * 50} or more, or a smaller {window}."
        )

    def picture(self, index: int) -> GridPicture:
        simulation = self._simulations[index]
        vibes = {f.name: f.categories for f in self.world_spec.obs.features}.get("vibe", ())  # pyright: ignore
        resources = simulation.resource_names
        objects = [
            GridObject(
                number,
                found["type_name"],
                found["r"],
                found["c"],
                found.get("agent_id", -1),
                vibes[vibe] if 0 < (vibe := found.get("vibe", 0)) < len(vibes) else "",  # 0 is the default
                {resources[which]: amount for which, amount in found["inventory"].items()},
            )
            for number, found in simulation.grid_objects().items()
        ]
        return GridPicture(simulation.map_height, simulation.map_width, objects)

    def close_extras(self, **kwargs: object) -> None:
        """Release the simulations, which reference the arrays (otherwise shared memory cannot be closed)."""
        self._simulations = [None] * len(self.env_ids)
        self._steppers = [_not_started] * len(self.env_ids)
        self._views = []
        _open.discard(self)


def _statistics(simulation: MettaGrid) -> dict[str, float]:
    """Return MettaGrid's statistics of an episode: game/NAME, and agent/NAME as the mean over all agents."""
    stats = simulation.get_episode_stats()
    agents = stats["agent"]
    sums: dict[str, float] = {}
    for agent in agents:
        for name, value in agent.items():
            sums[name] = sums.get(name, 0.0) + value
    means = {f"agent/{name}": value / len(agents) for name, value in sums.items()}
    return {f"game/{name}": value for name, value in stats["game"].items()} | means


def _difference(first: WorldSpec, now: WorldSpec) -> str:
    """Return what differs between two specs, apart from scales, in the user's words; "" if nothing does."""
    was: Any = first.obs
    now_is: Any = now.obs
    pairs = {
        "agents": (first.agents_per_env, now.agents_per_env),
        "window": (was.window, now_is.window),
        "game.obs.num_tokens": (was.num_tokens, now_is.num_tokens),
    }
    for what, (before, after) in pairs.items():
        if before != after:
            return f"{what}: {after} instead of {before}"
    known, found = _meanings(first), _meanings(now)
    if known == found:
        return ""
    return f"other features or actions: {name_some(sorted(name for name, _ in known.items() ^ found.items()), 4)}"


def _meanings(spec: WorldSpec) -> dict[str, tuple[int, ...]]:
    """Return the ids of every action, feature and category of a world by name."""
    obs: Any = spec.obs
    actions: Any = spec.actions
    meanings: dict[str, tuple[int, ...]] = {name: (id_,) for id_, name in enumerate(actions.names)}
    for f in obs.features:
        meanings[f.name] = (f.id,)
        meanings |= {f"{f.name}={category}": (f.id, value) for value, category in enumerate(f.categories)}
    return meanings


def _not_started() -> None:
    raise RuntimeError("this world is not started or is closed; call reset() before step()")
