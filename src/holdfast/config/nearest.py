"""Write the messages for unknown keys, worlds and agents: the nearest name, the owner of a key, the available names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches

from holdfast.config.describe import describe_keys, groups, keys_by_name
from holdfast.config.registry import WORLDS
from holdfast.config.sections import agent_names


def nearest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar candidate, ignoring case; None if no candidate is similar."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return " Did you mean ...?" with the nearest candidate, or with up to three that contain the name; "" if there is none."""
    known = list(candidates)
    near = nearest(name, known)
    inside = [known_name for known_name in known if len(name) > 2 and name.lower() in known_name.lower()]
    found = [near] if near else inside[:3]
    return f" Did you mean {' or '.join(found)}?" if found else ""


def unknown_key(name: str, known: Collection[str], chosen: dict[str, str]) -> str:
    """Return the message for an unknown key. `chosen` is the world and the agent as the user wrote them."""
    everywhere = keys_by_name()
    if name in everywhere:
        return f"{name} belongs to {_owners(name)}; {chosen[name.split('.')[0]]} does not have this key. Remove it."
    if name in groups():
        example = next((f", such as {key}" for key in known if key.startswith(f"{name}.")), "")
        return f"{name} is a group of keys. Set a single key of the group{example}."
    meant = nearest_key(name, known) or nearest_key(name, everywhere) or _described(name)
    if meant is None:
        group = name.rpartition(".")[0]
        group = f" {group}" if group in groups() else ""
        return f"unknown key {name}. `holdfast settings{group}` lists all keys."
    owner = "" if meant in known else f" That key belongs to {_owners(meant)}."
    return f"unknown key {name}. Did you mean {meant}?{owner}"


def unknown_env(name: str, ready: Collection[str]) -> str:
    """Return the message for `env=NAME` with an unknown world. `ready`: names of ready-made settings files."""
    words = {world: section.word() for world, section in WORLDS.items()}
    prefix, colon, rest = name.partition(":")
    if re.search(r"\.py:?$", name):
        return f"the name of a class or function in the file is missing. Write {name.rstrip(':')}:NAME."
    if colon and f"{prefix}:" in words:
        return f"the name after {prefix}: is missing. Write {words[f'{prefix}:']}."
    if colon and prefix in words:
        hint = prefix
    elif colon:
        found = nearest(f"{prefix}:", (world for world in words if world.endswith(":")))
        hint = f"{found}{rest}" if found else None
    elif re.fullmatch(r"[\w/.-]+-v\d+", name):
        hint = f"gym:{name}"
    elif name in ready:
        hint = f"settings={name}"
    else:
        found = nearest(name, (world.rstrip(":") for world in words))
        hint = next((word for world, word in words.items() if world.rstrip(":") == found), None)
    return f"no such world.{f' Did you mean {hint}?' if hint else ''}\nWorlds: {', '.join(words.values())}."


def unknown_agent(key: str, name: str) -> str:
    """Return the message for `agent=NAME` or `py_agent=NAME` with an unknown agent."""
    file = "FILE.yaml" if key == "agent" else "FILE.py:CLASS"
    other = "py_agent" if key == "agent" else "agent"
    is_other = ".py" in name if key == "agent" else name.endswith((".yaml", ".yml"))
    hint = f" Did you mean {other}={name}?" if is_other else did_you_mean(name, agent_names(key))
    return f"no such agent.{hint}\nAgents: {', '.join(agent_names(key))}, or a custom {file}."


def nearest_key(name: str, keys: Collection[str]) -> str | None:
    """Return a key whose last part equals or resembles that of `name`; keys in the same group are preferred.

    Only last parts are compared, because with the prefix `trainer.` any two names would be similar.
    """
    group, _, last = name.rpartition(".")
    beside = [_last(key) for key in keys if key.rpartition(".")[0] == group]
    same = None if group and nearest(last, beside, 0.9) else nearest(name, [k for k in keys if _last(k) == last], 0.0)
    near = nearest(last, beside)
    if same or near:
        return same or (f"{group}.{near}" if group else near)
    anywhere = nearest(last, [_last(key) for key in keys], 0.75)
    return next((key for key in keys if _last(key) == anywhere), None) or nearest(name, keys, 0.85)


def _described(name: str) -> str | None:
    """Find a key by its description: trainer.learning_rate -> trainer.lr, which is described as "learning rate"."""
    words = _last(name).replace("_", " ").lower()
    described = (key for key in describe_keys() if words in key.description.lower())
    return next((key.name for key in described if len(words) > 5), None)


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _owners(key: str) -> str:
    return " and ".join(dict.fromkeys(key.owner for key in keys_by_name()[key]))
