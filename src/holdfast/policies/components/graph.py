"""Read, check and build a graph of components; a mistake in the agent file raises SettingsError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from torch import nn

from holdfast.config.nearest import did_you_mean
from holdfast.errors import SettingsError
from holdfast.policies.actions import distribution_for
from holdfast.policies.components.component import BuildContext, Component, Entry, Shape, WiringError
from holdfast.policies.components.cores import component_types

OBS, CORE, ACTION, VALUE = "_obs_", "_core_", "_action_", "_value_"
REQUIRED = (OBS, CORE, ACTION, VALUE)


def read_entries(data: Any, where: str) -> dict[str, Entry]:
    """Validate a parsed agent file and return its components. where: the file's name, for error messages."""
    if not isinstance(data, Mapping) or set(data) != {"components"} or not isinstance(data["components"], Mapping):
        raise SettingsError(
            f"{where}: an agent file must have exactly one top-level key, `components`, a mapping of names to components."
        )
    entries = {}
    for name, body in data["components"].items():
        if not isinstance(name, str) or not name.isidentifier():
            raise SettingsError(
                f"{where}: {name!r} is not a valid component name. Use letters, digits and _, not starting with a digit."
            )
        if hasattr(nn.ModuleDict(), name):
            raise SettingsError(f"{where}: the component name {name!r} is reserved by torch. Choose another name.")
        twin = next((other for other in entries if other.strip("_") == name.strip("_")), None)
        if twin is not None:
            raise SettingsError(
                f"{where}: components {twin} and {name} differ only in underscores. Rename one of them."
            )
        try:
            entries[name] = _read_entry(body)
        except WiringError as error:
            raise SettingsError(f"{where}: {name}: {error}") from error
    return entries


def compute_order(entries: Mapping[str, Entry], where: str) -> list[str]:
    """Return the names in computation order; raise SettingsError for missing sources, cycles and unused components."""
    for name in REQUIRED:
        if name not in entries:
            raise SettingsError(
                f"{where}: {name} is missing. Every agent file needs the components {', '.join(REQUIRED)}."
            )
    order: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        if name in path:
            cycle = " -> ".join([*path[path.index(name) :], name])
            raise SettingsError(f"{where}: {cycle} is a cycle. Remove one of these sources.")
        path.append(name)
        for source in entries[name].sources:
            if source not in entries:
                hint = did_you_mean(source, entries.keys() - {name})
                raise SettingsError(f"{where}: {name} reads {source!r}, but that component does not exist.{hint}")
            visit(source)
        path.pop()
        order.append(name)

    visit(ACTION)
    visit(VALUE)
    for name in entries:
        if name not in order:
            visit(name)  # report mistakes in the sources of this component first
            raise SettingsError(
                f"{where}: neither {ACTION} nor {VALUE} uses {name}. "
                "Remove it, or add it to the `sources` of a component in use."
            )
    return order


def build(
    entries: Mapping[str, Entry], order: list[str], context: BuildContext, where: str, num_seen: int = 0
) -> dict[str, Component]:
    """Build the components in this order; check that each component can read the outputs of its sources.

    num_seen: the number of features that the core reads besides the output of its source.
    """
    built: dict[str, Component] = {}
    for name in order:
        entry = entries[name]
        kind = component_types()[entry.type]
        inputs = [built[source].out for source in entry.sources]
        try:
            _check_inputs(kind, entry, inputs)
            if name == CORE:
                inputs = [Shape("vector", (inputs[0].sizes[0] + num_seen,))]
            built[name] = kind(entry, _read_params(kind, entry), inputs, context)
            scaled = [key for key in ("clip_scale", "l2_init_scale") if getattr(entry, key) != 1.0]
            if scaled and not list(built[name].parameters()):
                raise WiringError(f"{scaled[0]} has no effect, because this component has no weights. Remove the key.")
        except WiringError as error:
            raise SettingsError(f"{where}: {name} ({entry.type}): {error}") from error
    num_params = distribution_for(context.spec.actions).num_params
    wanted = {
        VALUE: (1, "one number"),
        ACTION: (num_params, f"one score per action ({num_params} in {context.spec.name})"),
    }
    for name, (width, what) in wanted.items():
        if built[name].out != Shape("vector", (width,)):
            raise SettingsError(f"{where}: {name} outputs {built[name].out}; it must output {what}.")
    return built


def _read_entry(body: Any) -> Entry:
    if not isinstance(body, Mapping) or not isinstance(body.get("type"), str):
        raise WiringError("the type is missing. Add one, such as `type: Linear`.")
    types = component_types()
    kind = types.get(body["type"])
    if kind is None:
        hint = did_you_mean(body["type"], types) or f" Available: {', '.join(sorted(types))}."
        raise WiringError(f"unknown type {body['type']!r}.{hint}")
    try:
        entry = Entry.model_validate(dict(body))
    except ValidationError as error:
        raise WiringError(_explain(error, Entry)) from error
    least, given = len(kind.reads), len(entry.sources)
    if given < least or (given > least and not kind.reads_more):
        number = f"{least} or more sources" if kind.reads_more else f"{least} source{'s' * (least != 1)}"
        raise WiringError(f"{entry.type} takes {number}, not {given}.")
    for key in ("nonlinearity", "initialization"):
        if getattr(entry, key) is not None and not kind.has_weights:
            raise WiringError(f"{key} has no effect on {entry.type}. Remove the key.")
    _read_params(kind, entry)
    return entry


def _read_params(kind: type[Component], entry: Entry) -> BaseModel:
    try:
        return kind.Params.model_validate(entry.nn_params)
    except ValidationError as error:
        raise WiringError(f"nn_params: {_explain(error, kind.Params)}") from error


def _check_inputs(kind: type[Component], entry: Entry, inputs: list[Shape]) -> None:
    accepted = [*kind.reads, *kind.reads[-1:] * (len(inputs) - len(kind.reads))]
    for source, shape, kinds in zip(entry.sources, inputs, accepted, strict=True):
        if shape.kind not in kinds:
            raise WiringError(
                f"reads {' or '.join(kinds)}, but its source {source} outputs {shape}. "
                "Choose another source, or convert the output first, for example with Flatten."
            )


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Describe the first validation error, with the key as written in the agent file."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        allowed = ", ".join(model.model_fields) or "none"
        return f"unknown key {key!r}.{did_you_mean(key, model.model_fields)} Allowed: {allowed}."
    if first["type"] == "missing":
        return f"the required key {key} is missing."
    return f"{key}={first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}."
