"""key=value words and settings files -> Settings, or one SettingsError of at most three lines."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holdfast.config.conflicts import find_conflicts
from holdfast.config.describe import ENVS_BY_KIND, Key, keys_by_name, keys_of, mappings
from holdfast.config.files import READY, find_settings_file, read_tree, ready_names
from holdfast.config.nearest import did_you_mean, unknown_agent, unknown_env, unknown_key
from holdfast.config.settings import (
    ENVS_BY_NAME,
    ENVS_BY_PREFIX,
    POLICIES_BY_KIND,
    PolicySection,
    Settings,
    policy_kind,
)
from holdfast.config.values import printable, read_any, read_data, read_word
from holdfast.config.words import SHORT, Given, Problem, flatten, given_twice, split_words
from holdfast.errors import SettingsError

AGENT_KEYS = ("policy.agent", "policy.py_agent")


def load_settings(words: Sequence[str]) -> Settings:
    """Settings from words such as `env=memory trainer.lr=1e-3`, on top of a settings file.

    The file is `settings=NAME_OR_PATH`; without it the config.yaml of the run if run=NAME exists, the ready-made one of the
    world, or else quickstart.
    What a file says about a world or an agent goes when a word picks another: see `_drop_other_world`.
    """
    given, problems = split_words(words)
    chosen = next((g for g in given if g.key == "settings"), None)
    typed = [g for g in {g.key: g for g in reversed(given)}.values() if g.key != "settings"]
    past = None if chosen else _past_file(typed)
    path = find_settings_file(chosen.value) if chosen else past or _ready_file(typed)
    from_file = _read_file(path, problems) if path else []
    if past:  # whether it may go on is for the words to say; and it goes on where it was found, though it was moved
        from_file = [g for g in from_file if g.key not in ("resume", "runs_dir")]
    return _build(from_file, typed, problems)


def load_run_settings(path: Path) -> Settings:
    """The settings a run was started with, from its config.yaml. It may name code; whoever runs that has to ask."""
    problems: list[Problem] = []
    return _build(_read_file(path, problems), [], problems, of_run=True)


def _past_file(typed: list[Given]) -> Path | None:
    """The config.yaml of the run these words name, if it exists: the run goes on as it was started."""
    words = {g.key: str(g.value).strip() for g in typed}
    name = words.get("run", "")
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", name) or words.get("resume") == "never":
        return None
    try:
        path = Path(os.path.expanduser(words.get("runs_dir", "runs"))) / name / "config.yaml"
        return path if path.is_file() else None
    except (OSError, ValueError):
        return None  # whatever is wrong with runs_dir is said later


def _ready_file(typed: list[Given]) -> Path | None:
    env = next((str(g.value).strip() for g in typed if g.key == "env.name"), "quickstart")
    return READY / f"{env}.yaml" if env in ("quickstart", *ENVS_BY_NAME) else None


def _read_file(path: Path, problems: list[Problem]) -> list[Given]:
    name = f"settings={path.stem}" if path.parent == READY else printable(str(path), 100)
    given = list(flatten(read_tree(path), name))
    problems += given_twice(given)
    return given


def _build(from_file: list[Given], typed: list[Given], problems: list[Problem], of_run: bool = False) -> Settings:
    """Choose world and agent, read every value, let the schema check the whole, look for conflicts."""
    env = _pick("env.name", typed, from_file)
    kind = _env_kind(env, problems) if env else "memory"
    from_file = _drop_other_world(from_file, kind)
    agent = _pick_agent(typed, problems) or _pick_agent(from_file, problems)
    agent_kind = _agent_kind(agent, problems, of_run) if agent else policy_kind("py_agent", _usual_agent(kind))
    agent_word = agent.shown if agent else f"py_agent={_usual_agent(kind)}"
    from_file = _drop_other_agent(from_file, agent)

    overridden = tuple(g.key for g in typed)
    merged = [g for g in from_file if not _inside(g.key, overridden)] + typed
    keys = keys_of(ENVS_BY_KIND.get(kind or ""), POLICIES_BY_KIND.get(agent_kind or ""))
    tree: dict[str, Any] = {}
    if agent is None:
        _put(tree, "policy.py_agent", _usual_agent(kind))
    env_shown = f"env={printable(str(env.value).strip())}" if env else "env=memory"
    for g in merged:
        section = {"env": kind, "policy": agent_kind}.get(g.key.split(".")[0], "known")
        if section is None and _exists(g.key, keys_by_name()):
            continue  # which keys there are depends on a name that is already a problem
        if g.key in AGENT_KEYS and g is not agent:
            continue  # a second agent is a problem already
        try:
            _put(tree, g.key, _read(g, keys, env_shown, agent_word))
        except SettingsError as error:
            problems.append(Problem(g.order, g.key, str(error)))

    settings = _check(tree, keys, merged, problems)
    if settings is not None and not problems:
        given = {g.key: g for g in merged}
        for key, message in find_conflicts(settings, given=overridden):
            g = given.get(key)
            where = _in_file(g) if g else ""
            problems.append(Problem(g.order if g else len(merged), key, message + where))
    if problems or settings is None:
        raise _first(problems)
    return settings


def _pick(key: str, *sources: list[Given]) -> Given | None:
    return next((g for source in sources for g in source if g.key == key), None)


def _drop_other_world(from_file: list[Given], kind: str | None) -> list[Given]:
    """Without the file's env.* if it is about another world, and without an agent made for other worlds."""
    env = _pick("env.name", from_file)
    file_kind = _kind_of(env.value) if env else "memory"
    if kind in (None, file_kind):
        return from_file
    if _usual_agent(kind) != _usual_agent(file_kind):
        from_file = _drop_agent(from_file)
    return [g for g in from_file if not g.key.startswith("env.")]


def _drop_other_agent(from_file: list[Given], agent: Given | None) -> list[Given]:
    """If the file is about another agent than this: without what not every agent has."""
    own = [g for g in from_file if g.key in AGENT_KEYS]
    same = not own or (agent is not None and (own[0].key, own[0].value) == (agent.key, agent.value))
    return from_file if same else _drop_agent(from_file)


def _drop_agent(from_file: list[Given]) -> list[Given]:
    common = {f"policy.{field}" for field in PolicySection.model_fields}
    return [g for g in from_file if not g.key.startswith("policy.") or g.key in common]


def _usual_agent(kind: str | None) -> str:
    return "fast" if kind in ENVS_BY_NAME else "box"


def _kind_of(name: Any) -> str | None:
    """memory, gym, ... or None where there is no such world."""
    name = str(name).strip()
    prefix, _, rest = name.partition(":")
    return name if name in ENVS_BY_NAME else prefix if prefix in ENVS_BY_PREFIX and rest.strip() else None


def _env_kind(env: Given, problems: list[Problem]) -> str | None:
    kind = _kind_of(env.value)
    if kind is None:
        message = f"{env.source}: {unknown_env(printable(str(env.value).strip()), ready_names())}"
        problems.append(Problem(env.order, env.key, message))
    return kind


def _pick_agent(given: list[Given], problems: list[Problem]) -> Given | None:
    """The one agent that is named; two are a problem."""
    named = sorted((g for g in given if g.key in AGENT_KEYS), key=lambda g: g.order)
    if len(named) > 1:
        message = f"{named[0].shown} and {named[1].source}: two agents. Keep one."
        problems.append(Problem(named[1].order, named[1].key, message))
    return named[0] if named else None


def _agent_kind(agent: Given, problems: list[Problem], of_run: bool) -> str | None:
    key, name = agent.key.removeprefix("policy."), str(agent.value).strip()
    kind = policy_kind(key, name)
    if kind is None:
        problems.append(Problem(agent.order, agent.key, f"{agent.source}: {unknown_agent(key, printable(name))}"))
    elif kind == "own" and agent.file and not of_run:
        message = f"{agent.source}: a file cannot name code to run. Give it as a word: {key}={printable(name)}."
        problems.append(Problem(agent.order, agent.key, message))
    return kind


def _inside(key: str, overridden: tuple[str, ...]) -> bool:
    return any(key == other or key.startswith(f"{other}.") for other in overridden)


def _exists(key: str, names: Collection[str]) -> bool:
    """Whether it is one of these keys, or lies below one that takes any (env.kwargs)."""
    return key in names or any(key.startswith(f"{name}.") for name in mappings() if name in names)


def _read(g: Given, keys: dict[str, Key], env: str, py_agent: str) -> Any:
    """The value for the tree; it still has to pass the schema."""
    if not _exists(g.key, keys):
        known = [*keys, *SHORT, "settings"]
        raise SettingsError(unknown_key(printable(g.key), known, env, py_agent) + _in_file(g))
    try:
        value = _value(g, keys.get(g.key))
    except ValueError as error:
        raise SettingsError(_needs(g, keys.get(g.key), str(error))) from error
    if g.key == "run" and value == "" and not g.file:
        raise SettingsError(f"{g.shown}: the name is empty. Leave run out to have one made.")
    return value


def _value(g: Given, key: Key | None) -> Any:
    if isinstance(g.value, str) and not g.file:
        return read_word(key, g.value) if key else read_any(g.value)
    return read_data(key, g.value) if key else g.value


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
            if loc[0] in ("env", "policy"):
                del loc[1]  # pydantic puts the tag of the union there
            name = next(name for n in range(len(loc), 0, -1) if (name := ".".join(loc[:n])) in keys)
            g = next(g for g in reversed(merged) if g.key == name or g.key.startswith(f"{name}."))
            problem = Problem(g.order, g.key, _needs(g, keys[name]))
            if problem not in problems:
                problems.append(problem)
        return None


def _needs(g: Given, key: Key | None, reason: str = "") -> str:
    """The word, what its key takes, and why if that does not say it."""
    needs = f" needs {key.allowed}." if key else ""
    hint = did_you_mean(str(g.value).strip(), map(str, key.choices)) if key else ""
    return f"{g.source}:{needs}{hint}{f' {reason}.' if reason else ''}"


def _in_file(g: Given) -> str:
    return f" It is in {g.file}." if g.file else ""


def _first(problems: list[Problem]) -> SettingsError:
    """The first problem in the order of the words, and how many more there are."""
    first, *more = sorted(problems, key=lambda problem: problem.order)
    message = first.message
    if more:
        names = list(dict.fromkeys(printable(problem.key, 40) for problem in more))
        shown = ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
        message += f"\n{len(more)} more {'error' if len(more) == 1 else 'errors'}: {shown}."
    return SettingsError(message)
