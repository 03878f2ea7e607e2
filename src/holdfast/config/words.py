"""Split `key=value` words and settings files into single keys, and list the keys that match a filter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from holdfast.config.describe import Key, describe_keys, groups, keys_by_name, mappings
from holdfast.config.files import ready_names
from holdfast.config.nearest import nearest, nearest_key, unknown_agent, unknown_env
from holdfast.config.registry import WORLDS
from holdfast.config.sections import agent_names, find_policy, find_world
from holdfast.config.values import MAX_DEPTH, parse_yaml
from holdfast.errors import SettingsError, printable

SHORT = {"env": "env.name", "py_agent": "policy.py_agent", "agent": "policy.agent", "wandb": "wandb.mode"}


@dataclass(frozen=True)
class Given:
    """One key as the user wrote it. `value` is the text after `key=`, or the parsed value from a settings file."""

    key: str
    value: Any
    shown: str  # as typed, for messages
    order: int  # position among the words; -1 for a key from a settings file
    file: str = ""  # the settings file that contains the key; "" for a word

    @property
    def text(self) -> str:
        return str(self.value).strip()

    @property
    def source(self) -> str:
        return f"{self.shown} ({self.file})" if self.file else self.shown

    def problem(self, message: str) -> Problem:
        return Problem(self.order, self.key, message)


class Problem(NamedTuple):
    order: int
    key: str
    message: str


def split_words(words: Sequence[str]) -> tuple[list[Given], list[Problem]]:
    given: list[Given] = []
    problems: list[Problem] = []
    for order, word in enumerate(words):
        key, equals, text = word.partition("=")
        key = key.strip()
        if word.encode(errors="ignore").decode() != word:  # bytes that are not UTF-8
            problems.append(Problem(order, "", f"{printable(word)}: not UTF-8 text."))
            continue
        if not equals or not key or key.startswith("-"):
            problems.append(Problem(order, key, f"{printable(word)}: {_not_a_setting(key, text)}"))
            continue
        if text.strip().startswith("{") and key in groups():
            try:
                tree = parse_yaml(text)
            except ValueError as error:
                problems.append(Problem(order, key, f"{printable(word)}: not a mapping. {error}."))
                continue
            if not tree:
                problems.append(
                    Problem(order, key, f"{printable(word)}: empty. Write {key}.KEY=VALUE, or leave it out.")
                )
            given += [Given(g.key, g.value, g.shown, order) for g in flatten({key: tree}, "")]
        else:
            given.append(Given(SHORT.get(key, key), text, printable(word, 100), order))
    return given, problems + given_twice(given)


def flatten(tree: Mapping[Any, Any], file: str, prefix: str = "") -> Iterator[Given]:
    """Yield the full keys of a nested mapping: {trainer: {lr: 1}} gives trainer.lr. `env.kwargs` stays one mapping."""
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in mappings():
            yield from flatten(value, file, f"{key}.")
        elif value is not None or key not in groups():  # a group with all keys commented out is empty
            yield Given(SHORT.get(key, key), value, printable(f"{key}={value}", 100), -1, file)


def given_twice(given: Sequence[Given]) -> list[Problem]:
    """Return a problem for each key given twice, or together with one of its subkeys (env.kwargs and env.kwargs.seed)."""
    problems = []
    keys: dict[str, Given] = {}
    groups: dict[str, Given] = {}  # by each prefix of a key, the first key that has it
    for second in given:
        parts = second.key.split(".")
        prefixes = [".".join(parts[:n]) for n in range(1, min(len(parts), MAX_DEPTH))]
        first = keys.get(second.key)
        if first is None or first.value == second.value:
            first = groups.get(second.key) or next((keys[prefix] for prefix in prefixes if prefix in keys), None)
        if first is not None:
            message = f"{first.shown} and {second.source}: the same key is set twice. Remove one of the two."
            problems.append(second.problem(message))
        keys.setdefault(second.key, second)
        for prefix in prefixes:
            groups.setdefault(prefix, second)
    return problems


def _not_a_setting(key: str, text: str) -> str:
    if not key:
        return "the key is missing. Write key=value, such as trainer.lr=1e-3."
    if key.startswith("-"):  # --total-timesteps means trainer.total_timesteps
        name, keys = key.lstrip("-").replace("-", "_"), [*SHORT, *keys_by_name()]
        same_end = next((key for key in keys if name in (key, key.rpartition(".")[2])), None)
        meant = same_end or nearest(name, keys) or printable(name)
        return f"settings are written without dashes. Write {meant}={printable(text) or 'value'}."
    hints = {
        **{name: f"settings={name}" for name in ready_names()},
        **{name: f"env={name}" for name in WORLDS if ":" not in name},
        **{name: f"py_agent={name}" for name in agent_names("py_agent")},
        **{name: f"{name}=..." for name in keys_by_name()},
        **{short: f"{short}=..." for short in (*SHORT, "settings")},
    }
    found = nearest(key, hints)
    return (
        f"not key=value.{f' Did you mean {hints[found]}?' if found else ' Write key=value, such as trainer.lr=1e-3.'}"
    )


def list_keys(words: Sequence[str]) -> list[Key]:
    """List keys by prefix (`trainer`), by world (`env=gym:CartPole-v1`) and by agent (`py_agent=box`, `agent=fast`).

    A key that several worlds or agents define identically is listed once.
    """
    prefix, env, agent = "", None, None
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            prefix = word.strip(". ")
        elif name == "env":
            env = find_world(value) or next((world for world in WORLDS if world.rstrip(":") == value.rstrip(":")), None)
            if env is None:
                raise SettingsError(f"{printable(word)}: {unknown_env(printable(value), ready_names())}")
        elif name in ("agent", "py_agent"):
            agent = find_policy(name, value)
            if agent is None:
                raise SettingsError(f"{printable(word)}: {unknown_agent(name, printable(value))}")
        else:
            raise SettingsError(
                f"{printable(word)}: not a filter. Use the start of a key, or env=NAME, py_agent=NAME or agent=NAME."
            )
    keys = _merge(describe_keys(env, agent))
    found = [key for key in keys if key.name.startswith(prefix)]
    if not found:
        names = {key.name for key in keys} | groups()
        meant = nearest_key(prefix, names)
        hint = f" Did you mean {meant}?" if meant else ""
        raise SettingsError(f"no key starts with {printable(prefix)}.{hint}")
    return found


def _merge(keys: list[Key]) -> list[Key]:
    """Merge keys that several owners define identically; the owner is "" if all agents define the key."""
    rows: dict[str, list[Key]] = {}
    for key in keys:
        rows.setdefault(repr(replace(key, owner="")), []).append(key)
    num_agents = len({key.owner for key in keys if key.name.startswith("policy.")})
    merged = []
    for same in rows.values():
        of_every_agent = same[0].name.startswith("policy.") and len(same) == num_agents > 1
        merged.append(replace(same[0], owner="" if of_every_agent else ", ".join(key.owner for key in same)))
    return merged
