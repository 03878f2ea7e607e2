"""The keys a user asks to see: all of them, one group, one world's, one agent's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.config.describe import Key, describe_keys
from holdfast.config.files import ready_names
from holdfast.config.nearest import did_you_mean, unknown_agent, unknown_env
from holdfast.config.settings import ENVS_BY_NAME, ENVS_BY_PREFIX, policy_kind
from holdfast.config.values import printable
from holdfast.errors import SettingsError


def list_keys(words: Sequence[str]) -> list[Key]:
    """Keys that begin with a prefix, of a world (`env=gym:CartPole-v1`), of an agent (`py_agent=box`, `agent=fast`).

    A key that several worlds or agents have alike is listed once.
    """
    prefix, env, agent = "", None, None
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            prefix = word.strip(". ")
        elif name == "env":
            env = value if value in ENVS_BY_NAME else value.partition(":")[0]
            if env not in (*ENVS_BY_NAME, *ENVS_BY_PREFIX):
                raise SettingsError(f"{printable(word)}: {unknown_env(printable(value), ready_names())}")
        elif name in ("agent", "py_agent"):
            agent = policy_kind(name, value)
            if agent is None:
                raise SettingsError(f"{printable(word)}: {unknown_agent(name, printable(value))}")
        else:
            raise SettingsError(f"{printable(word)}: only env=..., py_agent=... and agent=... choose what is listed.")
    keys = _merge(describe_keys(env, agent))
    found = [key for key in keys if key.name.startswith(prefix)]
    if not found:
        groups = {part for key in keys for part in (key.name, key.name.rpartition(".")[0], key.name.split(".")[0])}
        raise SettingsError(f"no key begins with {printable(prefix)}.{did_you_mean(prefix, groups - {''})}")
    return found


def _merge(keys: list[Key]) -> list[Key]:
    """One row per key that is the same for several owners; no owner where it is the same for every agent."""
    rows: dict[str, list[Key]] = {}
    for key in keys:
        rows.setdefault(repr(replace(key, owner="")), []).append(key)
    num_agents = len({key.owner for key in keys if key.name.startswith("policy.")})
    merged = []
    for same in rows.values():
        of_every_agent = same[0].name.startswith("policy.") and len(same) == num_agents > 1
        merged.append(replace(same[0], owner="" if of_every_agent else ", ".join(key.owner for key in same)))
    return merged
