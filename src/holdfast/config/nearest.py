"""Messages for names that do not exist: what was meant, where it belongs, what there is."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches

from holdfast.config.describe import ENVS_BY_KIND, Key, env_word, groups, keys_by_name
from holdfast.config.settings import ENVS_BY_NAME, ENVS_BY_PREFIX, GRID_AGENTS


def nearest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A sentence to append to a message; nothing when nothing is near."""
    found = nearest(name, candidates)
    return f" Did you mean {found}?" if found else ""


def unknown_key(name: str, known: Collection[str], env: str, agent: str) -> str:
    """Why there is no key `name` with this world and agent (as the user wrote them)."""
    everywhere = keys_by_name()
    if name in everywhere:
        here = env if name.startswith("env.") else agent
        return f"{name} belongs to {_owners(everywhere[name])}; {here} does not have it."
    if name in groups():
        inside = [key for key in known if key.startswith(f"{name}.")]
        example = f", such as {inside[0]}" if inside else ""
        return f"{name} is a group of keys: set one of them{example}."
    meant = _meant(name, known) or _meant(name, everywhere) or _described(name, everywhere)
    if meant is None:
        group = name.rpartition(".")[0]
        group = f" {group}" if group in groups() else ""
        return f"unknown key {name}. `holdfast settings{group}` lists the keys there are."
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


def unknown_agent(key: str, name: str) -> str:
    """Why there is no such agent; key: agent or py_agent."""
    own = "FILE.yaml" if key == "agent" else "FILE.py:CLASS"
    known = GRID_AGENTS if key == "agent" else (*GRID_AGENTS, "box")
    other = "py_agent" if key == "agent" else "agent"
    of_the_other = ".py" in name if key == "agent" else name.endswith((".yaml", ".yml"))
    hint = f" Did you mean {other}={name}?" if of_the_other else did_you_mean(name, known)
    return f"no such agent.{hint}\nAgents: {', '.join(known)}, or {own} of your own."


def _meant(name: str, keys: Collection[str]) -> str | None:
    """A key whose last part is this, or near it in the same group, or near it anywhere.

    The parts are compared on their own: `trainer.` in front of two names would make any two look alike.
    """
    group, _, last = name.rpartition(".")
    beside = [_last(key) for key in keys if key.rpartition(".")[0] == group]
    same = None if group and nearest(last, beside, 0.9) else nearest(name, [k for k in keys if _last(k) == last], 0.0)
    near = nearest(last, beside)
    if same or near:
        return same or (f"{group}.{near}" if group else near)
    anywhere = nearest(last, [_last(key) for key in keys], 0.75)
    return next((key for key in keys if _last(key) == anywhere), None) or nearest(name, keys, 0.85)


def _described(name: str, everywhere: dict[str, list[Key]]) -> str | None:
    """trainer.learning_rate -> trainer.lr, whose description says "learning rate"."""
    words = _last(name).replace("_", " ").lower()
    rows = (row for rows in everywhere.values() for row in rows)
    return next((row.name for row in rows if len(words) > 5 and words in row.description.lower()), None)


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _owners(keys: list[Key]) -> str:
    return " and ".join(dict.fromkeys(key.owner for key in keys))
