"""Worlds of the user's own environments: from a class, a function or a ready object, of Gymnasium or PettingZoo."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv
from pettingzoo import AECEnv, ParallelEnv

from holdfast.envs.closing import close_each
from holdfast.envs.failures import describe_error
from holdfast.envs.gymnasium_world import GymWorld
from holdfast.envs.pettingzoo_world import PettingZooWorld
from holdfast.envs.replayable import play
from holdfast.envs.vector_world import VectorWorld
from holdfast.envs.world import Buffers, World
from holdfast.envs.worlds.own import OwnEnv
from holdfast.errors import HoldfastError, SettingsError, one_line, place_of, short_path, split_code_name
from holdfast.user_code import code_name, load_name

KINDS = (VectorEnv, gymnasium.Env, ParallelEnv, AECEnv)
EXPECTED = "a gymnasium.Env, a gymnasium.vector.VectorEnv, a pettingzoo.ParallelEnv or a pettingzoo.AECEnv"


def python_env(source: Any, **settings: Any) -> OwnEnv:
    """Return the settings of a world of your own environments, for `make_world` and `Settings(env=...)`.

    source: a class, a function or a ready object; settings: `num_envs`, `kwargs`, `hide`, `action_mask`. A ready object
    has its number of environments: 1, unless it is a VectorEnv; closing it is up to you. For worker processes, the source
    must be picklable.
    """
    if not callable(source) and not is_ready(source):
        raise SettingsError(f"env: {_describe(source)} is not a class or function that makes {EXPECTED}.")
    if is_ready(source):
        settings = {"num_envs": num_ready(source), **settings}
    env = OwnEnv(**{"name": code_name(_definition(source)), **settings})
    return env.with_source(source)


def load_source(name: str, file: str) -> Any:
    """Execute the file and return the class, function or object that `name`, written FILE.py:NAME, names in it."""
    source = load_name(file, split_code_name(name)[1], f"env={name}", _may_make_env, "Environments")
    if not callable(source) and not is_ready(source):
        raise SettingsError(f"env={name}: is {_describe(source)}, not a class or function that makes {EXPECTED}.")
    return source


def is_ready(source: Any) -> bool:
    """Return whether this is an environment, instead of a class or function that makes one."""
    return isinstance(source, KINDS)


def num_ready(source: Any) -> int:
    """Return how many environments a ready object has; 0 for a class or function."""
    return int(getattr(source, "num_envs", 1)) if is_ready(source) else 0


def makes_vectors(source: Any) -> bool:
    """Return whether this makes vector environments: a VectorEnv class, or a function with the argument num_envs."""
    if isinstance(source, type):
        return issubclass(source, VectorEnv)
    if is_ready(source):
        return isinstance(source, VectorEnv)
    try:
        return "num_envs" in inspect.signature(source).parameters
    except (TypeError, ValueError):  # a builtin
        return False


def build_own_world(settings: OwnEnv, env_ids: range, buffers: Buffers | None) -> World:
    """Create the environments and the world for their kind; raise SettingsError if that fails."""
    source = settings.source
    first = _make(settings, source, len(env_ids))
    rest, made = iter([first]), [first]

    def make(settings: Any) -> Any:
        if (env := next(rest, None)) is None:
            env = _make(settings, source, len(env_ids))
            _check_alike(settings, made, env)
            made.append(env)
        return env

    try:
        if isinstance(first, VectorEnv):
            world = VectorWorld(first, settings.name, env_ids, settings.hide)
        elif isinstance(first, gymnasium.Env):
            world = GymWorld(settings, env_ids, buffers, make)
        else:
            world = PettingZooWorld(settings, env_ids, buffers, make)
    except BaseException:
        if not is_ready(source):
            close_each(settings.name, env_ids.start, [*rest])
        raise
    if is_ready(source):
        world.close_extras = lambda **_: None  # the user made it, and may need it afterwards
    return world


def try_out(world: World, source: Any) -> None:
    """Reset and step once; raise SettingsError if that fails, so that a mistake shows before a run begins."""
    world.check_masks()
    try:
        play(world, episode=0, steps=1)
    except HoldfastError as error:
        name = world.world_spec.name
        raise SettingsError(f"env={name}{_defined_at(source)}: {str(error).removeprefix(f'{name}: ')}") from error


def check_picklable(source: Any, name: str) -> None:
    """Raise SettingsError if a worker process cannot get this source: it imports classes and functions by their name."""
    try:
        ForkingPickler.dumps(source)
        module = getattr(source, "__module__", "")
        if module == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
            raise ValueError("it was defined in an interactive session")
    except Exception as error:
        raise SettingsError(
            f"env={name}: cannot be sent to worker processes: {one_line(error)}.\nDefine the class or function at the top "
            "level of a module, or use trainer.num_workers=0."
        ) from error


def _make(settings: OwnEnv, source: Any, num_envs: int) -> Any:
    """Call the source and check what it returns."""
    asked = f"env={settings.name}"
    if is_ready(source):
        if num_envs != (has := num_ready(source)):
            raise SettingsError(
                f"{asked}: is a ready object with {has} environment{'s' * (has > 1)}, but env.num_envs={num_envs}.\n"
                f"Name its class, or a function that makes it, or set env.num_envs={has}."
            )
        env, arguments = source, {}
    else:
        arguments = {**settings.kwargs, **({"num_envs": num_envs} if makes_vectors(source) else {})}
        env = _call(source, arguments, asked)
    if not is_ready(env):
        raise SettingsError(f"{asked}{_defined_at(source)}: returned {_describe(env)}.\nExpected {EXPECTED}.")
    try:
        problem = _vector_problem(settings, source, env, num_envs) or _space_problem(env)
    except Exception as error:
        problem = f"reading its spaces raised {describe_error(error)}."
    if problem:
        if env is not source:
            close_each(settings.name, 0, [env])
        raise SettingsError(f"{asked}{_defined_at(env)}: {problem}")
    return env


def _call(source: Any, arguments: dict[str, Any], asked: str) -> Any:
    try:
        return source(**arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        hint = f"\nIt was called with ({given}); check env.kwargs." if arguments or isinstance(error, TypeError) else ""
        place = place_of(error) or _defined_at(source)
        raise SettingsError(
            f"{asked}: creating the environment failed: {describe_error(error)}{place}.{hint}"
        ) from error


def _vector_problem(settings: OwnEnv, source: Any, env: Any, num_envs: int) -> str:
    if isinstance(env, VectorEnv):
        if not makes_vectors(source):
            return "returned a VectorEnv. A function that makes one must have the argument num_envs."
        if env.num_envs != num_envs:
            return f"has num_envs={env.num_envs}, but it was made with num_envs={num_envs}."
        if settings.action_mask:
            return "is a VectorEnv, for which env.action_mask is not supported. Remove env.action_mask."
    elif makes_vectors(source):
        kind = "Env" if isinstance(env, gymnasium.Env) else "PettingZoo environment"
        return f"returned a single {kind}. A function with the argument num_envs must return a gymnasium VectorEnv."
    return ""


def _space_problem(env: Any) -> str:
    """Return what is wrong with the spaces of a Gymnasium environment, or ''."""
    if not isinstance(env, VectorEnv | gymnasium.Env):
        return ""  # PettingZoo has a space for each agent
    single = "single_" if isinstance(env, VectorEnv) else ""
    for name in (f"{single}observation_space", f"{single}action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, gymnasium.Space):
            has = f"{name} is {_describe(space)}" if hasattr(env, name) else f"has no {name}"
            return f"{has}. Set self.{name} in __init__ to a gymnasium.spaces.Space, such as Box or Discrete."
    return ""


def _check_alike(settings: OwnEnv, made: list[Any], env: Any) -> None:
    """Raise SettingsError unless this is a new environment with the spaces of those before: one policy acts in all of them."""
    first = made[0]
    kind = next(kind for kind in KINDS if isinstance(first, kind))
    different = ""
    if any(env is other for other in made):
        different = "returned the same object twice"
    elif not isinstance(env, kind):
        different = f"has made a {kind.__name__} first, then {_describe(env)}"
    else:
        for name, of_first, now in _traits(first, env):
            if of_first != now:
                different = f"has made environments with different {name}: {of_first} and {now}"
                break
    if different:
        close_each(settings.name, 0, [env])
        raise SettingsError(
            f"env={settings.name}: {different}. A world needs several environments that are alike, but not the same."
        )


def _traits(first: Any, env: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield what must be equal in two environments of a world: its name, and its values."""
    if isinstance(first, gymnasium.Env):
        for name in ("observation_space", "action_space"):
            yield f"{name}s", getattr(first, name), getattr(env, name)
    else:
        yield "agents", list(first.possible_agents), list(env.possible_agents)
        for agent in first.possible_agents[:1]:
            yield "observation spaces", first.observation_space(agent), env.observation_space(agent)
            yield "action spaces", first.action_space(agent), env.action_space(agent)


def _may_make_env(value: Any) -> bool:
    return issubclass(value, KINDS) if isinstance(value, type) else callable(value)


def _describe(value: Any) -> str:
    kind = type(value)
    where = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return "None" if value is None else f"an object of type {where}{kind.__qualname__}"


def _defined_at(value: Any) -> str:
    """Return ' at mine.py:12' for the class or function, or for the class of an environment; '' if it has no source file."""
    code = _definition(value)
    try:
        return f" at {short_path(Path(inspect.getsourcefile(code) or ''))}:{inspect.getsourcelines(code)[1]}"
    except (TypeError, OSError):
        return ""


def _definition(value: Any) -> Any:
    """Return the class or function that a source is, calls or is made from."""
    if isinstance(value, partial):
        return _definition(value.func)
    value = getattr(value, "unwrapped", value) if is_ready(value) else value
    return value if hasattr(value, "__qualname__") else type(value)
