"""From a file's components to an order in which each can be computed, or one clear message about what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from torch import nn

from holdfast.config.nearest import did_you_mean
from holdfast.errors import SettingsError
from holdfast.policies.actions import distribution_for
from holdfast.policies.components.component import Component, Entry, Place, Shape, WiringError
from holdfast.policies.components.registry import COMPONENTS

OBS, CORE, ACTION, VALUE = "_obs_", "_core_", "_action_", "_value_"
REQUIRED = (OBS, CORE, ACTION, VALUE)


def read_entries(data: Any, where: str) -> dict[str, Entry]:
    """The components of a parsed file, each checked by itself."""
    if not isinstance(data, Mapping) or set(data) != {"components"} or not isinstance(data["components"], Mapping):
        raise SettingsError(f"{where}: an agent is a file with one key, `components`, and the components below it.")
    entries = {}
    for name, body in data["components"].items():
        if not isinstance(name, str) or not name.isidentifier():
            raise SettingsError(f"{where}: {name!r} is not a name; names are letters, digits and _.")
        if hasattr(nn.ModuleDict(), name):
            raise SettingsError(f"{where}: {name!r} is a name that torch keeps for itself. Choose another.")
        twin = next((other for other in entries if other.strip("_") == name.strip("_")), None)
        if twin is not None:
            raise SettingsError(f"{where}: {twin} and {name} differ in underscores only. Choose another name for one.")
        entries[name] = _entry(name, body, where)
    return entries


def compute_order(entries: Mapping[str, Entry], where: str) -> list[str]:
    """Names, sources first. Nothing may be missing, stand in a circle, or lead nowhere."""
    for name in REQUIRED:
        if name not in entries:
            raise SettingsError(f"{where}: there is no {name}. Every agent has {', '.join(REQUIRED)}.")
    order: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            raise SettingsError(f"{where}: {circle} is a circle; a component cannot wait for itself.")
        path.append(name)
        for source in entries[name].sources:
            if source not in entries:
                raise SettingsError(
                    f"{where}: {name} reads {source!r}, which is not there.{did_you_mean(source, entries.keys() - {name})}"
                )
            visit(source)
        path.pop()
        order.append(name)

    visit(ACTION)
    visit(VALUE)
    for name in entries:
        if name not in order:
            visit(name)  # a mistake inside it comes first
            raise SettingsError(
                f"{where}: nothing that leads to {ACTION} or {VALUE} reads {name}. Remove it or wire it in."
            )
    return order


def build(entries: Mapping[str, Entry], order: list[str], place: Place, where: str) -> dict[str, Component]:
    """The components, in that order; widths and kinds checked where they meet."""
    built: dict[str, Component] = {}
    for name in order:
        entry = entries[name]
        kind = COMPONENTS[entry.type]
        inputs = [built[source].out for source in entry.sources]
        try:
            _check_inputs(kind, entry, inputs)
            built[name] = kind(entry, _params(kind, entry), inputs, place)
            scaled = [key for key in ("clip_scale", "l2_init_scale") if getattr(entry, key) != 1.0]
            if scaled and not list(built[name].parameters()):
                raise WiringError(f"{scaled[0]} has no effect, since it has no weights. Remove it")
        except WiringError as error:
            raise SettingsError(f"{where}: {name} ({entry.type}): {error}.") from error
    _check_ends(built, place, where)
    return built


def _check_ends(built: Mapping[str, Component], place: Place, where: str) -> None:
    wanted = {VALUE: 1, ACTION: distribution_for(place.spec.actions).num_params}
    for name, width in wanted.items():
        if built[name].out != Shape("vector", (width,)):
            what = "the value, one number" if name == VALUE else f"one number per action, {width} in {place.spec.name}"
            raise SettingsError(f"{where}: {name} gives {built[name].out}; it has to give {what}.")


def _entry(name: str, body: Any, where: str) -> Entry:
    if not isinstance(body, Mapping) or not isinstance(body.get("type"), str):
        raise SettingsError(f"{where}: {name} needs a type, such as `type: Linear`.")
    if body["type"] not in COMPONENTS:
        hint = did_you_mean(body["type"], COMPONENTS) or f" There are {', '.join(sorted(COMPONENTS))}."
        raise SettingsError(f"{where}: {name} has the type {body['type']!r}, which is not known.{hint}")
    try:
        entry = Entry.model_validate(dict(body))
    except ValidationError as error:
        raise SettingsError(f"{where}: {name}: {_explain(error, Entry)}.") from error
    kind = COMPONENTS[entry.type]
    least, given = len(kind.reads), len(entry.sources)
    if given < least or (given > least and not kind.reads_more):
        number = {0: "no sources", 1: "one source"}.get(least, f"{least} sources")
        more = " or more" if kind.reads_more else ""
        raise SettingsError(f"{where}: {name} ({entry.type}): it reads {number}{more}, not {given}.")
    for key in ("nonlinearity", "initialization"):
        if getattr(entry, key) is not None and not kind.has_weights:
            raise SettingsError(f"{where}: {name}: {key} has no effect on {entry.type}. Remove it.")
    try:
        _params(kind, entry)
    except WiringError as error:
        raise SettingsError(f"{where}: {name}: {error}.") from error
    return entry


def _params(kind: type[Component], entry: Entry) -> BaseModel:
    try:
        return kind.Params.model_validate(entry.nn_params)
    except ValidationError as error:
        raise WiringError(f"nn_params: {_explain(error, kind.Params)}") from error


def _check_inputs(kind: type[Component], entry: Entry, inputs: list[Shape]) -> None:
    accepted = [*kind.reads, *kind.reads[-1:] * (len(inputs) - len(kind.reads))]
    for source, shape, kinds in zip(entry.sources, inputs, accepted, strict=True):
        if shape.kind not in kinds:
            raise WiringError(f"it reads {' or '.join(kinds)}, and {source} gives {shape}")


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first thing wrong, in the file's words."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        allowed = ", ".join(model.model_fields) or "none"
        return f"{key!r} is not known.{did_you_mean(key, model.model_fields)} Allowed: {allowed}"
    if first["type"] == "missing":
        return f"{key} is missing"
    return f"{key}={first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}"
