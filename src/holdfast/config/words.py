"""Split key=value words and settings files into single keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.config.describe import groups, keys_by_name, mappings
from holdfast.config.files import ready_names
from holdfast.config.nearest import nearest
from holdfast.config.registry import WORLDS
from holdfast.config.sections import agent_names
from holdfast.config.values import parse_yaml, printable

SHORT = {"env": "env.name", "py_agent": "policy.py_agent", "agent": "policy.agent"}


@dataclass(frozen=True)
class Given:
    """One key as the user wrote it. `value` is the text of a word or the data of a file."""

    key: str
    value: Any
    shown: str  # as typed, for messages
    order: int  # position among the words; -1 for a key of a file
    file: str = ""  # the settings file it comes from; "" for a word

    @property
    def source(self) -> str:
        return f"{self.shown} ({self.file})" if self.file else self.shown


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
        if not equals or not key or key.startswith("-"):
            problems.append(Problem(order, key, f"{printable(word)}: {_not_a_setting(key, text)}"))
            continue
        if key in groups() and text.strip().startswith("{"):
            try:
                tree = parse_yaml(text)
            except ValueError as error:
                problems.append(Problem(order, key, f"{printable(word)}: is not a mapping. {error}."))
                continue
            given += [Given(g.key, g.value, g.shown, order) for g in flatten({key: tree}, "")]
        else:
            given.append(Given(SHORT.get(key, key), text, printable(word, 100), order))
    return given, problems + given_twice(given)


def flatten(tree: Mapping[Any, Any], file: str, prefix: str = "") -> Iterator[Given]:
    """Full keys of a nested mapping: {trainer: {lr: 1}} gives trainer.lr. A mapping below env.kwargs is its value."""
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in mappings():
            yield from flatten(value, file, f"{key}.")
        elif value is not None or key not in groups():  # a group with all keys commented out is empty
            yield Given(SHORT.get(key, key), value, printable(f"{key}={value}", 100), -1, file)


def given_twice(given: Sequence[Given]) -> list[Problem]:
    """Problems: one key with two values, or a key and one below it (env.kwargs and env.kwargs.gravity)."""
    problems = []
    for i, second in enumerate(given):
        for first in given[:i]:
            same = first.key == second.key and first.value != second.value
            inside = first.key.startswith(f"{second.key}.") or second.key.startswith(f"{first.key}.")
            if same or inside:
                message = f"{first.shown} and {second.source}: the same key twice. Remove one."
                problems.append(Problem(second.order, second.key, message))
    return problems


def _key_of_option(option: str) -> str:
    """The key for an option: trainer.total_timesteps for --total-timesteps."""
    name = option.lstrip("-").replace("-", "_")
    keys = [*keys_by_name(), *SHORT]
    ends_so = [key for key in keys if name == key.rpartition(".")[2]]
    return name if name in keys else next(iter(ends_so), None) or nearest(name, keys) or printable(name)


def _not_a_setting(key: str, text: str) -> str:
    if not key:
        return "the key is missing. Write key=value, such as trainer.lr=1e-3."
    if key.startswith("-"):
        return f"settings are written without dashes. Write {_key_of_option(key)}={printable(text) or 'value'}."
    hints = {
        **{name: f"settings={name}" for name in ready_names()},
        **{name: f"env={name}" for name in WORLDS if ":" not in name},
        **{name: f"py_agent={name}" for name in agent_names("py_agent")},
        **{name: f"{name}=..." for name in keys_by_name()},
        **{short: f"{short}=..." for short in (*SHORT, "settings")},
    }
    found = nearest(key, hints)
    return f"not key=value.{f' Did you mean {hints[found]}?' if found else ' Write it as trainer.lr=1e-3.'}"
