"""List all settings keys: the accepted values, the default, and the world or agent that each key belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from holdfast.config.registry import AGENTS, CELLS, POLICIES, WORLDS
from holdfast.config.sections import EnvSection, OneOf, PolicySection, Section
from holdfast.config.settings import Settings

Kind = Literal["int", "float", "bool", "text", "choice", "list", "mapping"]
KINDS: dict[Any, Kind] = {int: "int", float: "float", bool: "bool", str: "text"}


@dataclass(frozen=True)
class Limits:
    low: float | None = None
    high: float | None = None
    low_is_open: bool = False  # the value must be above `low`, not equal to it


@dataclass(frozen=True)
class Key:
    """One setting. `owner` is the world or agent that has this key ("env=memory", "py_agent=box"); "" if all have it."""

    name: str
    kind: Kind
    default: Any  # None for a required key, such as the name of a Gymnasium environment
    allowed: str  # "a whole number from 1 to 65536"
    description: str
    owner: str = ""
    optional: bool = False
    choices: tuple[Any, ...] = ()
    limits: Limits = Limits()


def describe_keys(world: str | None = None, policy: str | None = None) -> list[Key]:
    """Return all keys, or only those that apply to a `world` ("memory", "gym:") and a kind of `policy` ("box")."""
    worlds = [WORLDS[world]] if world else WORLDS.values()
    policies = [POLICIES[policy]] if policy else POLICIES.values()
    return [
        *_walk(Settings),
        *(key for section in worlds for key in _walk(section, "env.", f"env={section.word()}")),
        *(key for section in policies for key in _walk(section, "policy.", section.word())),
    ]


def keys_by_name() -> dict[str, list[Key]]:
    """Return the keys of all worlds and agents by name; a name has one entry per world or agent that defines it."""
    return _keys_by_name(tuple(tuple(registry) for registry in (WORLDS, POLICIES, AGENTS, CELLS)))


@cache
def _keys_by_name(_registered: tuple[tuple[str, ...], ...]) -> dict[str, list[Key]]:
    found: dict[str, list[Key]] = {}
    for key in describe_keys():
        found.setdefault(key.name, []).append(key)
    return found


def keys_of(world: str | None, policy: str | None) -> dict[str, Key]:
    """Return the keys of one world and one kind of policy, by name. None: leave out the keys of `env` or `policy`."""
    owners = {"", f"env={WORLDS[world].word()}" if world else "", POLICIES[policy].word() if policy else ""}
    return {key.name: key for keys in keys_by_name().values() for key in keys if key.owner in owners}


def groups() -> set[str]:
    """Return all prefixes of keys, such as `trainer`, `trainer.schedule` and `env`."""
    names = [name.split(".") for name in keys_by_name()]
    return {".".join(parts[:depth]) for parts in names for depth in range(1, len(parts))}


def mappings() -> list[str]:
    """Return the keys whose value is a mapping with arbitrary keys, such as `env.kwargs`."""
    return [name for name, keys in keys_by_name().items() if keys[0].kind == "mapping"]


def _walk(section: type[Section], prefix: str = "", owner: str = "") -> Iterator[Key]:
    # the key that selects the section comes first: `name` for a world, `agent` or `py_agent` for an agent
    fields = sorted(section.model_fields.items(), key=lambda item: item[0] not in ("name", "agent", "py_agent"))
    for name, field in fields:
        inner = field.annotation
        if not (isinstance(inner, type) and issubclass(inner, Section)):
            yield _key(prefix + name, field, owner)
        elif inner not in (EnvSection, PolicySection):
            yield from _walk(inner, f"{prefix}{name}.", owner)


def _key(name: str, field: FieldInfo, owner: str) -> Key:
    type_, metadata, optional = _plain(field.annotation, list(field.metadata))
    limits = _limits(metadata)
    choices: tuple[Any, ...] = ()
    one_of = next((item for item in metadata if isinstance(item, OneOf)), None)
    if one_of or get_origin(type_) is Literal:
        kind, choices = "choice", tuple(one_of.names()) if one_of else get_args(type_)
        allowed = str(choices[0]) if len(choices) == 1 else "one of " + ", ".join(map(str, choices))
    elif get_origin(type_) is list:
        items = get_args(type_)[0]
        or_name = " or a name" if get_origin(items) in (Union, UnionType) else ""  # a number, or text
        item, item_metadata, _ = _plain(get_args(items)[0] if or_name else items, [])
        limits = _limits(item_metadata)
        kind, allowed = "list", f"a list such as [1, 3], each {_number(item, limits)}{or_name}"
    elif get_origin(type_) is dict:
        kind, allowed = "mapping", f"a mapping such as {{key: value}}; {name}.key=value sets one entry"
    elif type_ in KINDS:
        kind = KINDS[type_]
        allowed = {"bool": "on or off", "text": "text"}.get(kind) or _number(type_, limits)
    else:
        raise TypeError(
            f"{name}: settings of type {type_} are not supported; use int, float, bool, str, Literal, list or dict"
        )
    if isinstance(field.json_schema_extra, dict):
        allowed = str(field.json_schema_extra["allowed"])
    if optional:
        allowed += ", or None"
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return Key(name, kind, default, allowed, field.description or "", owner, optional, choices, limits)


def _plain(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any], bool]:
    """Strip `Annotated` and `| None` from a type. Return (type, annotations, whether None is allowed)."""
    optional = False
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *extra = get_args(annotation)
            for item in extra:
                metadata += item.metadata if isinstance(item, FieldInfo) else [item]
        elif get_origin(annotation) in (Union, UnionType):
            annotation, *others = (arg for arg in get_args(annotation) if arg is not NoneType)
            if others:
                raise TypeError(
                    f"a setting must have a single type, optionally with `| None`, but this one has {annotation} and {others}"
                )
            optional = True
        else:
            return annotation, metadata, optional


def _limits(metadata: list[Any]) -> Limits:
    above = [m.gt for m in metadata if hasattr(m, "gt")]
    lows = [m.ge for m in metadata if hasattr(m, "ge")] + above
    highs = [m.le for m in metadata if hasattr(m, "le")]
    low = max(lows, default=None)
    return Limits(low, min(highs, default=None), low_is_open=bool(above) and low == max(above))


def _number(type_: type, limits: Limits) -> str:
    noun = "a whole number" if type_ is int else "a number"
    low, high = (f"{limit:.10g}" if isinstance(limit, float) else limit for limit in (limits.low, limits.high))
    if low is not None and high is not None and not limits.low_is_open:
        return f"{noun} from {low} to {high}"
    above = "" if low is None else f"{'above' if limits.low_is_open else 'at least'} {low}"
    below = "" if high is None else f"at most {high}"
    return f"{noun} {' and '.join(filter(None, (above, below)))}".strip()
