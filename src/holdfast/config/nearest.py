"""Messages for names that do not exist: what was meant, where it belongs, what there is."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches

from holdfast.config.describe import ENVS_BY_KIND, Key, describe_keys, env_word
from holdfast.config.settings import ENVS_BY_NAME, ENVS_BY_PREFIX, POLICIES_BY_NAME


def nearest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """ " Did you mean X?", or nothing when nothing is near."""
    found = nearest(name, candidates)
    return f" Did you mean {found}?" if found else ""


def unknown_key(name: str, known: Collection[str], env: str, py_agent: str) -> str:
    """Why there is no key `name` with this world and agent (as the user wrote them)."""
    everywhere: dict[str, list[Key]] = {}
    for key in describe_keys():
        everywhere.setdefault(key.name, []).append(key)
    if name in everywhere:
        here = env if name.startswith("env.") else py_agent
        return f"{name} belongs to {_owners(everywhere[name])}; {here} does not have it."
    if name in {
        key.rsplit(".", depth)[0] for key in everywhere for depth in (1, 2) if key.count(".") >= depth
    }:
        inside = [key for key in known if key.startswith(f"{name}.")]
        example = f", such as {inside[0]}=..." if inside else ""
        return f"{name} is a group of keys: set one of them{example}."
    meant = _same_ending(name, known) or nearest(name, known, 0.75) or _anywhere(name, everywhere)
    if meant is None:
        return f"unknown key {name}. `holdfast settings` lists every key."
    owner = "" if meant in known else f" It belongs to {_owners(everywhere[meant])}."
    return f"unknown key {name}. Did you mean {meant}?{owner}"


def unknown_env(name: str, ready: Collection[str]) -> str:
    worlds = "Worlds: " + ", ".join(env_word(kind) for kind in ENVS_BY_KIND) + "."
    prefix, colon, rest = name.partition(":")
    if colon and prefix in ENVS_BY_PREFIX:
        return f"a name is missing after {prefix}:, write {env_word(prefix)}."
    if colon and prefix in ENVS_BY_NAME:
        return f"{prefix} takes no name. Did you mean {prefix}?\n{worlds}"
    if colon:
        found = nearest(prefix, ENVS_BY_PREFIX)
        return f"no such world.{f' Did you mean {found}:{rest}?' if found else ''}\n{worlds}"
    if re.fullmatch(r"[\w/.-]+-v\d+", name):
        return f"no such world. Did you mean gym:{name}?\n{worlds}"
    if name in ready:
        return f"no such world. Did you mean settings={name}?\n{worlds}"
    found = nearest(name, ENVS_BY_KIND)
    return f"no such world.{f' Did you mean {env_word(found)}?' if found else ''}\n{worlds}"


def unknown_agent(name: str) -> str:
    return f"no such agent.{did_you_mean(name, POLICIES_BY_NAME)}\nAgents: {', '.join(POLICIES_BY_NAME)}."


def _same_ending(name: str, known: Collection[str]) -> str | None:
    """total_timesteps for trainer.total_timesteps; a near ending counts only when nothing else is near."""
    endings = [key for key in known if key.endswith(f".{name.rsplit('.', 1)[-1]}")]
    return nearest(name, endings, 0.0)


def _anywhere(name: str, everywhere: Collection[str]) -> str | None:
    found = nearest(name, everywhere)
    if found is None:
        last = nearest(name.rsplit(".", 1)[-1], {key.rsplit(".", 1)[-1] for key in everywhere}, 0.75)
        found = next((key for key in everywhere if last and key.rsplit(".", 1)[-1] == last), None)
    return found


def _owners(keys: list[Key]) -> str:
    return " and ".join(dict.fromkeys(key.owner for key in keys))
