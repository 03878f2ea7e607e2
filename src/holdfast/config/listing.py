"""Select the keys that `holdfast settings` lists: all, one group, those of one world or one agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.config.describe import Key, describe_keys
from holdfast.config.files import ready_names
from holdfast.config.nearest import did_you_mean, unknown_agent, unknown_env
from holdfast.config.registry import WORLDS
from holdfast.config.sections import find_policy, find_world
from holdfast.config.values import printable
from holdfast.errors import SettingsError


def list_keys(words: Sequence[str]) -> list[Key]:
    """Keys that start with a prefix, of one world (`env=gym:CartPole-v1`), of one agent (`py_agent=box`, `agent=fast`).

    A key that is the same in several worlds or agents is listed once.
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
            raise SettingsError(f"{printable(word)}: is not a filter. Use env=..., py_agent=... or agent=....")
    keys = _merge(describe_keys(env, agent))
    found = [key for key in keys if key.name.startswith(prefix)]
    if not found:
        groups = {part for key in keys for part in (key.name, key.name.rpartition(".")[0], key.name.split(".")[0])}
        raise SettingsError(f"no key starts with {printable(prefix)}.{did_you_mean(prefix, groups - {''})}")
    return found


def _merge(keys: list[Key]) -> list[Key]:
    """Merge keys that are the same for several owners; no owner if the key is the same for all agents."""
    rows: dict[str, list[Key]] = {}
    for key in keys:
        rows.setdefault(repr(replace(key, owner="")), []).append(key)
    num_agents = len({key.owner for key in keys if key.name.startswith("policy.")})
    merged = []
    for same in rows.values():
        of_every_agent = same[0].name.startswith("policy.") and len(same) == num_agents > 1
        merged.append(replace(same[0], owner="" if of_every_agent else ", ".join(key.owner for key in same)))
    return merged
