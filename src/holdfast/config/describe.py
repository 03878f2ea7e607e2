"""The settings as a list of keys: what each accepts, its default, and which world or agent it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from holdfast.config.registry import POLICIES, WORLDS, registered_names
from holdfast.config.sections import EnvSection, OneOf, PolicySection, Section
from holdfast.config.settings import Settings

Kind = Literal["int", "float", "bool", "text", "choice", "list", "mapping"]
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Limits:
    low: float | None = None
    high: float | None = None
    low_is_open: bool = False  # the value must be above `low`, not equal to it


@dataclass(frozen=True)
class Key:
    """One setting. `owner` is the word it needs ("env=memory", "py_agent=box"); "" for keys that always exist."""

    name: str
    kind: Kind
    default: Any  # None for a required key (the name of a Gymnasium environment)
    allowed: str  # "a whole number from 1 to 65536"
    description: str
    owner: str = ""
    optional: bool = False
    choices: tuple[Any, ...] = ()
    limits: Limits = Limits()


def describe_keys(world: str | None = None, policy: str | None = None) -> list[Key]:
    """Every key, in order. world ("memory", "gym:") and policy ("plain", "box") select those of one of each."""
    worlds = [WORLDS[world]] if world else WORLDS.values()
    policies = [POLICIES[policy]] if policy else POLICIES.values()
    return [
        *_walk(Settings, skip=("env", "policy")),
        *(key for section in worlds for key in _walk(section, "env.", f"env={section.word()}")),
        *(key for section in policies for key in _walk(section, "policy.", section.word())),
    ]


def _cached(function: Callable[P, R]) -> Callable[P, R]:
    """Cache results until something new is registered."""

    @cache
    def cached(_: tuple[tuple[str, ...], ...], *args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    @wraps(function)
    def current(*args: P.args, **kwargs: P.kwargs) -> R:
        return cached(registered_names(), *args, **kwargs)

    return current


@_cached
def keys_by_name() -> dict[str, list[Key]]:
    """Every key of any world and any agent; several entries where several of them have a key of that name."""
    found: dict[str, list[Key]] = {}
    for key in describe_keys():
        found.setdefault(key.name, []).append(key)
    return found


@_cached
def groups() -> frozenset[str]:
    """Prefixes of keys: trainer, trainer.schedule, env."""
    names = [name.split(".") for name in keys_by_name()]
    return frozenset(".".join(parts[:depth]) for parts in names for depth in range(1, len(parts)))


@_cached
def mappings() -> tuple[str, ...]:
    """Keys that accept any keys below them: env.kwargs."""
    return tuple(name for name, rows in keys_by_name().items() if rows[0].kind == "mapping")


@_cached
def keys_of(world: type[EnvSection] | None, policy: type[PolicySection] | None) -> dict[str, Key]:
    """The keys of one world and one kind of policy by name. None: not known, so no keys in that section."""
    keys = list(_walk(Settings, skip=("env", "policy")))
    if world is not None:
        keys += _walk(world, "env.")
    if policy is not None:
        keys += _walk(policy, "policy.")
    return {key.name: key for key in keys}


def _walk(section: type[Section], prefix: str = "", owner: str = "", skip: tuple[str, ...] = ()) -> Iterator[Key]:
    # first the key that chooses the section: `name` of a world, `agent` or `py_agent` of an agent
    fields = sorted(section.model_fields.items(), key=lambda item: item[0] not in ("name", "agent", "py_agent"))
    for name, field in fields:
        if name in skip:
            continue
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from _walk(inner, f"{prefix}{name}.", owner)
        else:
            yield _key(prefix + name, field, owner)


def _key(name: str, field: FieldInfo, owner: str) -> Key:
    type_, metadata, optional = _plain(field.annotation, list(field.metadata))
    limits = _limits(metadata)
    choices: tuple[Any, ...] = ()
    kind: Kind
    one_of = next((item for item in metadata if isinstance(item, OneOf)), None)
    if one_of or get_origin(type_) is Literal:
        kind, choices = "choice", tuple(one_of.names()) if one_of else get_args(type_)
        allowed = str(choices[0]) if len(choices) == 1 else "one of " + ", ".join(map(str, choices))
    elif get_origin(type_) is list:
        kind = "list"
        item, item_metadata, _ = _plain(get_args(type_)[0], [])
        limits = _limits(item_metadata)
        allowed = f"a list such as [1, 3], each {_number(item, limits)}"
    elif get_origin(type_) is dict:
        kind, allowed = "mapping", f"a mapping such as {{key: value}}; {name}.key=value sets one"
    elif type_ is bool:
        kind, allowed = "bool", "on or off"
    elif type_ in (int, float):
        kind, allowed = ("int" if type_ is int else "float"), _number(type_, limits)
    elif type_ is str:
        kind, allowed = "text", "text"
    else:
        raise TypeError(f"{name}: a setting of type {type_} has no description yet")
    if isinstance(field.json_schema_extra, dict):
        allowed = str(field.json_schema_extra.get("allowed", allowed))
    if optional:
        allowed += ", or None"
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return Key(name, kind, default, allowed, field.description or "", owner, optional, choices, limits)


def _plain(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any], bool]:
    """Strip Annotated and `| None` from a type: (type, annotations, whether None is allowed)."""
    optional = False
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *extra = get_args(annotation)
            for item in extra:
                metadata += item.metadata if isinstance(item, FieldInfo) else [item]
        elif get_origin(annotation) in (Union, UnionType):
            annotation, *others = (arg for arg in get_args(annotation) if arg is not NoneType)
            if others:
                raise TypeError(f"a setting has a single type, not {annotation} and {others}")
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
    low, high = limits.low, limits.high
    if low is not None and high is not None and not limits.low_is_open:
        return f"{noun} from {_figure(low)} to {_figure(high)}"
    bounds = []
    if low is not None:
        bounds.append(f"{'above' if limits.low_is_open else 'at least'} {_figure(low)}")
    if high is not None:
        bounds.append(f"at most {_figure(high)}")
    return " ".join([noun, " and ".join(bounds)]).strip()


def _figure(value: float) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
