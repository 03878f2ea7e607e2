"""Games from a MettaGridConfig: of a file of the user's, or of MettaGrid's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
from pydantic import ValidationError

from holdfast.envs.mettagrid import api as mg
from holdfast.envs.mettagrid.features import models_in
from holdfast.envs.mettagrid.game import Map
from holdfast.envs.worlds.mettagrid import READY, MettaGridConfigEnv
from holdfast.errors import HoldfastError, SettingsError, one_line, place_of, printable, split_code_name
from holdfast.user_code import load_name

VARYING = ("seed", "env", "episode")  # arguments that a function may take besides env.kwargs


class ConfigGame:
    """The game of a MettaGridConfig. Its maps depend on the seed of the episode only."""

    def __init__(self, config: mg.MettaGridConfig):
        self.config = config.game
        self.desync = config.desync_episodes

    def map(self, seed: int) -> Map:
        builder_config = seeded(self.config.map_builder, seed)
        builder = builder_config.create()
        if not isinstance(builder_config, mg.HasSeed):  # otherwise MettaGrid draws the agents' places without a seed
            builder.shuffle_spawn_indices = np.random.default_rng(seed).shuffle
        return builder.build_for_num_agents(self.config.num_agents).grid.tolist()


class ConfigGames:
    """Call it with (environment, episode, seed) for the game of that episode.

    A configuration, or a function that takes none of `seed`, `env` and `episode`, gives one game for all episodes.
    """

    def __init__(self, settings: MettaGridConfigEnv):
        self._asked = f"env={settings.name}"
        self._source, self._kwargs = _find(settings.name, self._asked), settings.kwargs
        self._takes: tuple[str, ...] = ()
        if isinstance(self._source, mg.MettaGridConfig):
            if settings.kwargs:
                raise SettingsError(
                    f"{self._asked} with env.kwargs: it is a MettaGridConfig, which takes no arguments. "
                    "Name a function that returns one, or remove env.kwargs."
                )
        elif callable(self._source):
            self._takes = _varying_arguments(self._source)
        self._game: ConfigGame | None = None

    def __call__(self, env: int, episode: int, seed: int) -> ConfigGame:
        if self._game is not None and not self._takes:
            return self._game
        values = {"seed": seed, "env": env, "episode": episode}
        config = self._source
        if not isinstance(config, mg.MettaGridConfig) and callable(config):
            config = self._call({name: values[name] for name in self._takes} | self._kwargs)
        if not isinstance(config, mg.MettaGridConfig):
            what = "returned" if callable(self._source) else "is"
            hint = " Use MettaGridConfig(game=...)." if isinstance(config, mg.GameConfig) else ""
            raise HoldfastError(
                f"{self._asked} {what} an object of type {type(config).__name__}; expected a MettaGridConfig, or a "
                f"function that returns one.{hint}"
            )
        if wrong := why_unsupported(config.game):
            raise HoldfastError(f"{self._asked}: {wrong}")
        self._game = ConfigGame(config)
        return self._game

    def _call(self, arguments: Mapping[str, Any]) -> Any:
        try:
            return self._source(**arguments)
        except HoldfastError:
            raise
        except (Exception, SystemExit) as error:
            given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            called = f" It was called with {printable(given, 100)}." if given else ""
            raise HoldfastError(f"{self._asked}: {_message(error)}{place_of(error)}.{called}") from error


def _find(name: str, asked: str) -> Any:
    """Return the object that `mettagrid:FILE.py:NAME` or `mettagrid:READY` names."""
    named = name.partition(":")[2]
    if named in READY:
        return mg.ready_configs()[named]
    file, attribute = split_code_name(named)
    if not file.endswith(".py") or not attribute:
        raise SettingsError(
            f"{asked} is not FILE.py:NAME, such as env=mettagrid:./mine.py:config, "
            f"and not a configuration that comes with MettaGrid: {', '.join(READY)}."
        )
    return load_name(file, attribute, asked, inspect.isfunction, "Functions")


def _varying_arguments(source: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(source).parameters
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(name for name in VARYING if name in parameters and parameters[name].kind in kinds)


def _message(error: BaseException) -> str:
    """Return an error as one line, without the advertisement in pydantic's messages."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{error.title}: {place}: {first['msg']} (got {printable(repr(first['input']), 40)})"
    return f"{type(error).__name__}: {one_line(error, 300)}"


def why_unsupported(game: mg.GameConfig) -> str | None:
    """Return what to change in a configuration that MettaGrid 0.26.22 would run wrongly or not at all, else None."""
    obs, actions = game.obs, game.actions
    num_features = len(game.id_map().features())
    if not all(side in range(1, 16, 2) for side in (obs.width, obs.height)):  # with an even side, MettaGrid crashes
        return f"game.obs has a window of {obs.width} x {obs.height} cells; width and height must be odd, at most 15."
    if obs.token_dim != 3 or obs.num_tokens < 1:
        return f"game.obs.token_dim={obs.token_dim} and num_tokens={obs.num_tokens}: use token_dim=3 and at least one token."
    if num_features > 255:
        return (
            f"it has {num_features} observation features, and MettaGrid can number 255. "
            "Use fewer game.resource_names, or game.protocol_details_obs=False."
        )
    for name, action in (("noop", actions.noop), ("move", actions.move)):
        if not action.enabled:
            return (
                f"game.actions.{name}.enabled=False: MettaGrid keeps the action but names all actions after it wrongly. "
                f"Enable it{'; game.actions.move.allowed_directions says which moves there are' * (name == 'move')}."
            )
    if len(actions.actions()) > 255:
        return f"it has {len(actions.actions())} actions; at most 255 are possible. Shorten game.actions.change_vibe.vibes."
    if game.agents and len(game.agents) != game.num_agents:
        return f"game.agents lists {len(game.agents)} agents, but game.num_agents={game.num_agents}."
    if game.talk.enabled:
        return "game.talk.enabled=True: agents can neither write nor read text. Set it to False."
    return None


# ------------------------------------------------------------------------------------------------------- seeds of maps


def seeded(builder: Any, seed: int) -> Any:
    """Return a copy of a map builder's configuration whose maps depend on `seed` only.

    MettaGrid adds the number of the episode to the seed of a map builder (None: no seed reproduces the map). We add the
    seed of the episode instead. MapGen does not seed the map builders inside it. A seed that the user gave those stays;
    the others get a new seed for each map they build, so that several instances differ as they do in MettaGrid.
    """
    builder = builder.model_copy(deep=True)
    inner = [model for model in models_in(builder) if isinstance(model, mg.MapBuilderConfig) and model is not builder]
    if isinstance(builder, mg.HasSeed):
        builder.seed = ((builder.seed or 0) + seed) % 2**31
    seeds = Random(seed)
    for model in inner:
        if isinstance(model, mg.HasSeed) and model.seed is None:
            object.__setattr__(model, "create", _with_next_seed(model, seeds))  # a model has no field `create`
    return builder


def _with_next_seed(model: Any, seeds: Random) -> Callable[[], Any]:
    return lambda: type(model).create(model.model_copy(update={"seed": seeds.getrandbits(31)}))
