"""Build a policy from its settings: a registered agent, a graph of components, or a class in a user's file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import torch

from holdfast.config.registry import AGENTS
from holdfast.config.sections import PolicySection
from holdfast.config.values import parse_yaml
from holdfast.errors import SettingsError, lack_of_memory, one_line, place_of, split_code_name
from holdfast.files import read_named
from holdfast.policies.components.component_policy import ComponentPolicy
from holdfast.policies.initialization import initialize_like_seeds
from holdfast.policies.policy import Policy
from holdfast.policies.settings import GRAPHS, GRID_AGENTS, ComponentPolicySettings, OwnPolicySettings
from holdfast.spec import WorldSpec
from holdfast.user_code import is_defined_in, load_file

LARGEST_FILE = 100_000
ARGUMENTS = {"hidden": "hidden_size", "layers": "num_layers"}  # setting: argument of the constructor
COPIES_PER_WEIGHT = 4  # a trained weight needs memory for its value, its gradient and two moments of Adam


def make_policy(settings: PolicySection, spec: WorldSpec, graph: Any = None) -> Policy:
    """Build the policy for this world. Initial weights are drawn from torch's global random generator.

    graph: the components saved in a checkpoint; if given, the agent's YAML file is not read.
    """
    policy = _build(settings, spec, graph)
    if getattr(settings, "init", "own") == "seeds":
        initialize_like_seeds(policy)
    if settings.compile:
        policy.compile_around_recurrence()
    return policy


def build_on_meta(settings: PolicySection, spec: WorldSpec, graph: Any = None) -> Policy | None:
    """Build the policy on the meta device, to get parameter sizes without allocating them.

    Return None for custom policies and if that fails.
    """
    if not isinstance(settings, OwnPolicySettings):
        with suppress(Exception), torch.device("meta"):  # the real policy, built next, reports errors
            return _build(settings, spec, graph)
    return None


def check_policy_size(settings: PolicySection, spec: WorldSpec) -> None:
    """Raise SettingsError if the policy does not fit into memory; drawing its initial weights could take hours."""
    on_meta = build_on_meta(settings, spec)
    needed = COPIES_PER_WEIGHT * sum(x.nbytes for x in on_meta.parameters()) if on_meta else 0
    if lack := lack_of_memory(needed, psutil.virtual_memory().available):
        raise SettingsError(
            f"{settings.agent_word}: its weights, gradients and Adam's moments need {lack}.\n"
            "Use a smaller agent, policy.hidden or policy.layers."
        )


def _build(settings: PolicySection, spec: WorldSpec, graph: Any) -> Policy:
    options = _options(settings)
    match settings:
        case ComponentPolicySettings(agent=agent):
            return ComponentPolicy(spec, graph or read_graph(agent), settings.agent_word, **options)
        case OwnPolicySettings(py_agent=py_agent):
            return _make_own(settings.source, py_agent, spec, options)
        case _:
            return AGENTS[getattr(settings, settings.key)](spec, **options)


def read_graph(agent: str) -> Any:
    """Read and parse the component graph of a built-in agent or of a .yaml file."""
    path = GRAPHS / f"{agent}.yaml" if agent in GRID_AGENTS else Path(agent).expanduser()
    try:
        return parse_yaml(read_named(path, LARGEST_FILE).decode("utf-8"))
    except OSError as error:
        raise SettingsError(f"agent={agent}: cannot read the file: {error.strerror or error}.") from error
    except (UnicodeDecodeError, ValueError) as error:
        raise SettingsError(f"agent={agent}: {error}.") from error


def load_class(py_agent: str) -> type[Policy]:
    """Execute the file and return the policy class for `py_agent`, written FILE.py:CLASS."""
    file, name = split_code_name(py_agent)
    module = load_file(file, f"py_agent={py_agent}")
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, Policy):
        classes = {key: value for key, value in vars(module).items() if isinstance(value, type)}
        own = [key for key, kind in classes.items() if issubclass(kind, Policy) and is_defined_in(module, kind)]
        listed = ", ".join(own) or "none"
        raise SettingsError(
            f"py_agent={py_agent}: {name} is not a policy class. Policies in the file: {listed}. "
            "A policy must subclass Policy."
        )
    return found


def _make_own(kind: type[Policy], py_agent: str, spec: WorldSpec, options: dict[str, Any]) -> Policy:
    """Build a user's policy with the world's spec, policy.kwargs and `options`."""
    kwargs = options.pop("kwargs")
    try:
        return kind(spec, **options, **kwargs)
    except TypeError as error:
        given = ", ".join(["world", *(f"{name}={value!r}" for name, value in (options | kwargs).items())])
        refused = next((name for name in options if f"unexpected keyword argument '{name}'" in str(error)), None)
        advice = f"check policy.kwargs and the constructor.{_how_to_unset(refused) if refused else ''}"
        raise SettingsError(
            f"py_agent={py_agent}: {one_line(error)}{place_of(error)}.\nThe class was called with ({given}); {advice}"
        ) from error
    except SystemExit as error:  # without this, the command would end, perhaps with exit code 0
        raise SettingsError(
            f"py_agent={py_agent}: its constructor calls sys.exit(){place_of(error)}. Raise an exception instead."
        ) from error


def _how_to_unset(argument: str) -> str:
    key = next((key for key, name in ARGUMENTS.items() if name == argument), argument)
    default = PolicySection.model_fields[key].default
    return (
        f"\npolicy.{key} was set by the command line or by the settings file: accept {argument} in the constructor, "
        f"or unset the key with policy.{key}={default}."
    )


def _options(settings: PolicySection) -> dict[str, Any]:
    """Return the constructor arguments. Settings of all policies are left out if they have their default value."""
    options: dict[str, Any] = settings.model_dump(exclude={"agent", "py_agent", "init", "compile", "weights"})
    defaults = {key: field.default for key, field in PolicySection.model_fields.items()}
    changed = {key: value for key, value in options.items() if key not in defaults or value != defaults[key]}
    return {ARGUMENTS.get(key, key): value for key, value in changed.items()}
