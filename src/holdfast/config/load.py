"""Load Settings from `key=value` words and settings files, or raise one SettingsError with at most three lines."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holdfast.config.conflicts import find_conflicts
from holdfast.config.describe import Key, keys_by_name, keys_of, mappings
from holdfast.config.files import (
    READY,
    check_storable,
    find_settings_file,
    read_run_config,
    read_settings_file,
    ready_names,
)
from holdfast.config.keywords import read_keywords
from holdfast.config.nearest import did_you_mean, unknown_agent, unknown_env, unknown_key
from holdfast.config.registry import WORLDS
from holdfast.config.sections import EnvSection, PolicySection, find_policy, find_world
from holdfast.config.settings import Settings
from holdfast.config.strangers import refuse_unnamed
from holdfast.config.values import parse_yaml, read_data, read_word
from holdfast.config.words import SHORT, Given, Problem, flatten, given_twice, split_words
from holdfast.errors import SettingsError, name_some, printable

AGENT_KEYS = ("policy.agent", "policy.py_agent")


def load_settings(words: Sequence[str], keywords: Mapping[str, Any] | None = None) -> Settings:
    """Load settings from words such as `env=memory trainer.lr=1e-3`, which override the values in a settings file.

    keywords: more settings, as values of a Python program, in nested mappings: {"trainer": {"lr": 1e-3}}.

    The settings file is `settings=NAME_OR_PATH`; without that word, the config.yaml of run=NAME if the run exists, else
    the ready-made file for the world, else quickstart. If a word chooses another world or agent than the file does,
    the `env.*` or `policy.*` keys in the file are ignored.
    """
    given, problems = split_words(words)
    if keywords:
        given += read_keywords(keywords, first=len(words))
        problems += [problem for problem in given_twice(given) if problem not in problems]
    chosen = next((g for g in given if g.key == "settings"), None)
    typed = [g for g in {g.key: g for g in reversed(given)}.values() if g.key != "settings"]
    past = None if chosen else _past_file(typed)
    path = find_settings_file(chosen.value) if chosen else past or _ready_file(typed)
    from_file = _read_file(path, problems, of_run=path == past) if path else []
    if past:  # `resume` and `runs_dir` come from the command line only, so a run folder that was moved can be resumed
        from_file = [g for g in from_file if g.key not in ("resume", "runs_dir")]
    settings = _build(from_file, typed, problems)
    if past:
        refuse_unnamed(settings, typed, past)
    check_storable(settings)
    return settings


def load_run_settings(path: Path) -> Settings:
    """Load the config.yaml of a run. The settings may name a Python file; ask the user before executing that file."""
    problems: list[Problem] = []
    return _build(_read_file(path, problems, of_run=True), [], problems, of_run=True)


def load_run_world(path: Path, words: Sequence[str] = ()) -> EnvSection:
    """Load the world of a run's config.yaml, changed by words such as `env=memory env.corridor=6`."""
    if odd := next((word for word in words if not word.startswith(("env=", "env."))), None):
        code = odd.removeprefix("py_agent=")
        hint = f" To name the code of the run's policy, use --py-agent {printable(code)}." if code != odd else ""
        raise SettingsError(
            f"{printable(odd)}: only the world can be changed here, as in env=memory env.corridor=6.{hint}"
        )
    typed, problems = split_words(words)
    from_file = [g for g in _read_file(path, problems, of_run=True) if g.key.startswith("env.")]
    settings = _build(from_file, typed, problems)
    refuse_unnamed(settings, typed, path, only="env.")
    return settings.env


def _past_file(typed: list[Given]) -> Path | None:
    """Return the config.yaml of the run that these words name, or None if the file does not exist."""
    words = {g.key: str(g.value).strip() for g in typed}
    name = words.get("run", "")
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", name) or words.get("resume") == "never":
        return None
    try:
        path = Path(os.path.expanduser(words.get("runs_dir", "runs"))) / name / "config.yaml"
        return path if os.path.lexists(path) else None
    except (OSError, ValueError):
        return None  # errors in runs_dir are reported later


def _ready_file(typed: list[Given]) -> Path | None:
    env = _pick("env.name", typed)
    name = env.text if env else "quickstart"
    return READY / f"{name}.yaml" if name in ready_names() and (env is None or name in WORLDS) else None


def _read_file(path: Path, problems: list[Problem], of_run: bool) -> list[Given]:
    name = f"settings={path.stem}" if path.parent == READY else printable(str(path), 100)
    given = list(flatten(read_run_config(path) if of_run else read_settings_file(path), name))
    if len(given) > (most := len(keys_by_name())):
        raise SettingsError(f"{name}: has {len(given):,} keys, but there are only {most} settings.")
    problems += given_twice(given)
    return given


def _build(from_file: list[Given], typed: list[Given], problems: list[Problem], of_run: bool = False) -> Settings:
    """Select the world and the agent, parse and validate every value, and check for conflicts."""
    env = _pick("env.name", typed, from_file)
    world = find_world(env.text) if env else "memory"
    if env and world is None:
        problems.append(env.problem(f"{env.source}: {unknown_env(printable(env.text), ready_names())}"))
    if env and world and env.file and not of_run and (module := WORLDS[world].module_in(env.text)):
        reason = f"runs the code in {printable(module)}, which only the command line may name. If you trust it, add"
        problems.append(env.problem(f"{env.source}: {reason}:\nenv={printable(env.text)}"))
    from_file = _drop_other_world(from_file, world)
    agent = _pick_agent(typed, problems) or _pick_agent(from_file, problems)
    usual_agent = _usual_agent(world)
    kind = _find_policy(agent, problems, of_run) if agent else find_policy("py_agent", usual_agent)
    own = _pick_agent(from_file, [])
    if own and agent and (own.key, own.value) != (agent.key, agent.value) and not _both_custom(own, agent):
        from_file = _drop_agent(from_file)

    overridden = tuple(g.key for g in typed)
    merged = [g for g in from_file if not any(f"{g.key}.".startswith(f"{key}.") for key in overridden)] + typed
    keys = keys_of(world, kind)
    tree: dict[str, Any] = {}
    if agent is None:
        _put(tree, "policy.py_agent", usual_agent)
    chosen = {
        "env": f"env={printable(env.text)}" if env else "env=memory",
        "policy": agent.shown if agent else f"py_agent={usual_agent}",
    }
    for g in merged:
        section = {"env": world, "policy": kind}.get(g.key.split(".")[0], "known")
        if section is None and _exists(g.key, keys_by_name()):
            continue  # the valid keys depend on the world or agent, and its unknown name is already reported
        if g.key in AGENT_KEYS and g is not agent:
            continue  # a second agent is already reported
        try:
            _put(tree, g.key, _read(g, keys, chosen))
        except SettingsError as error:
            problems.append(g.problem(str(error)))

    settings = _check(tree, keys, merged, problems)
    if settings is not None and not problems:
        given = {g.key: g for g in merged}
        for key, message in find_conflicts(settings, given=overridden):
            g = given.get(key)
            problems.append(g.problem(message + _in_file(g)) if g else Problem(len(merged), key, message))
    if problems or settings is None:
        raise _first(problems)
    return settings


def _pick(key: str, *sources: list[Given]) -> Given | None:
    return next((g for source in sources for g in source if g.key == key), None)


def _drop_other_world(from_file: list[Given], world: str | None) -> list[Given]:
    """Drop the `env.*` keys if the file is for another world, and the agent if the worlds' default agents differ."""
    env = _pick("env.name", from_file)
    of_file = find_world(env.text) if env else "memory"
    if world in (None, of_file):
        return from_file
    if _usual_agent(world) != _usual_agent(of_file):
        from_file = _drop_agent(from_file)
    return [g for g in from_file if not g.key.startswith("env.")]


def _drop_agent(from_file: list[Given]) -> list[Given]:
    """Drop the `policy.*` keys that are specific to one agent."""
    common = {f"policy.{field}" for field in PolicySection.model_fields}
    return [g for g in from_file if not g.key.startswith("policy.") or g.key in common]


def _both_custom(first: Given, second: Given) -> bool:
    """Return whether both name custom code: the same code may be in another place, so its settings are kept."""
    return {find_policy(g.key.removeprefix("policy."), g.text) for g in (first, second)} == {"own"}


def _usual_agent(world: str | None) -> str:
    return WORLDS[world].usual_agent if world else "box"


def _pick_agent(given: list[Given], problems: list[Problem]) -> Given | None:
    """Return the key that selects the agent, or None. If there are two such keys, add an error to `problems`."""
    named = sorted((g for g in given if g.key in AGENT_KEYS), key=lambda g: g.order)
    if len(named) > 1:
        problems.append(named[1].problem(f"{named[0].shown} and {named[1].source}: two agents. Remove one of them."))
    return named[0] if named else None


def _find_policy(agent: Given, problems: list[Problem], of_run: bool) -> str | None:
    key, name = agent.key.removeprefix("policy."), printable(agent.text)
    kind = find_policy(key, agent.text)
    if kind is None:
        problems.append(agent.problem(f"{agent.source}: {unknown_agent(key, name)}"))
    elif kind == "own" and agent.file and not of_run:
        reason = f"a settings file cannot name Python code. Give the agent on the command line: {key}={name}."
        problems.append(agent.problem(f"{agent.source}: {reason}"))
    return kind


def _exists(key: str, names: Collection[str]) -> bool:
    """Return whether `key` is one of `names`, or an entry of a mapping among them (`env.kwargs.gravity`)."""
    return key in names or any(key.startswith(f"{name}.") for name in mappings() if name in names)


def _read(g: Given, keys: dict[str, Key], chosen: dict[str, str]) -> Any:
    """Parse the value of a key, without validation. `chosen`: world and agent as the user wrote them, for messages."""
    if not _exists(g.key, keys):
        raise SettingsError(unknown_key(printable(g.key), [*keys, *SHORT, "settings"], chosen) + _in_file(g))
    key = keys.get(g.key)  # None for a key without a type, such as env.kwargs.gravity
    try:
        if isinstance(g.value, str) and not g.file:
            value = read_word(key, g.value) if key else None if g.text == "None" else parse_yaml(g.value)
        elif key and key.kind == "text" and type(g.value) in (int, float) and not g.file:  # ranks=2 in Python
            value = str(g.value)
        else:
            value = read_data(key, g.value) if key else g.value
    except ValueError as error:
        raise SettingsError(_needs(g, key, str(error))) from error
    if g.key == "run" and value == "" and not g.file:
        raise SettingsError(f"{g.shown}: the run name is empty. Write run=NAME, or remove run= to generate a name.")
    return value


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    *groups, last = key.split(".")
    for group in groups:
        if not isinstance(tree.get(group), dict):
            tree[group] = {}
        tree = tree[group]
    tree[last] = value


def _check(tree: dict[str, Any], keys: dict[str, Key], merged: list[Given], problems: list[Problem]) -> Settings | None:
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        for failure in error.errors():
            loc = [str(part) for part in failure["loc"]]
            name = next(name for n in range(len(loc), 0, -1) if (name := ".".join(loc[:n])) in keys)
            g = next(g for g in reversed(merged) if f"{g.key}.".startswith(f"{name}."))
            problem = g.problem(_needs(g, keys[name]))
            if problem not in problems:
                problems.append(problem)
        return None


def _needs(g: Given, key: Key | None, reason: str = "") -> str:
    """Return the message for an invalid value: the word, the accepted values, the nearest choice, the reason."""
    needs = f" needs {key.allowed}.{did_you_mean(g.text, map(str, key.choices))}" if key else ""
    return f"{g.source}:{needs}{f' {reason}.' if reason else ''}"


def _in_file(g: Given) -> str:
    return f" The key is in {g.file}." if g.file else ""


def _first(problems: list[Problem]) -> SettingsError:
    """Return an error with the first problem in the order of the words, and the other one, or the keys of the others."""
    first, *more = sorted(problems, key=lambda problem: problem.order)
    message = first.message
    if len(more) == 1:
        message += f"\n1 more error: {more[0].message.splitlines()[0]}"
    elif more:
        shown = name_some(printable(problem.key, 40) for problem in more)
        message += f"\n{len(more)} more errors: {shown}."
    return SettingsError(message)
