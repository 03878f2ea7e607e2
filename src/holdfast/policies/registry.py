"""Agents by name. A file or a checkpoint may only name what is listed here; code of a user's own comes from a word."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.config.settings import (
    GRID_AGENTS,
    ComponentPolicySettings,
    OwnPolicySettings,
    PlainPolicySettings,
    PolicySection,
)
from holdfast.config.values import parse_yaml
from holdfast.errors import SettingsError, first_line, place_of
from holdfast.policies.components import ComponentPolicy
from holdfast.policies.initialization import initialize_like_seeds
from holdfast.policies.lstm_wrapper import LSTMWrapper
from holdfast.policies.plain.box import BoxPolicy
from holdfast.policies.plain.example import Example
from holdfast.policies.plain.fast import Fast
from holdfast.policies.plain.latent_attn import LatentAttnMed, LatentAttnSmall, LatentAttnTiny
from holdfast.policies.policy import Policy
from holdfast.spec import WorldSpec

PY_AGENTS: dict[str, type[LSTMWrapper]] = {
    "fast": Fast,
    "latent_attn_tiny": LatentAttnTiny,
    "latent_attn_small": LatentAttnSmall,
    "latent_attn_med": LatentAttnMed,
    "example": Example,
    "box": BoxPolicy,
}
AGENTS = Path(__file__).parent / "agents"
LARGEST_FILE = 100_000


def make_policy(settings: PolicySection, spec: WorldSpec, graph: Any = None) -> Policy:
    """The policy the settings describe, for this world. Weights come from torch's generator.

    graph: the components, if they are already at hand (out of a checkpoint), so that no file is read.
    """
    options = _options(settings)
    match settings:
        case ComponentPolicySettings(agent=agent):
            policy: Policy = ComponentPolicy(spec, graph or read_graph(agent), settings.agent_word, **options)
        case OwnPolicySettings(py_agent=py_agent):
            policy = _make_own(load_class(py_agent), py_agent, spec, options)
        case _:
            policy = PY_AGENTS[settings.py_agent](spec, **options)  # type: ignore[attr-defined]
    if isinstance(settings, PlainPolicySettings | ComponentPolicySettings) and settings.init == "seeds":
        initialize_like_seeds(policy)
    if settings.compile:
        policy.compile_around_recurrence()
    return policy


def read_graph(agent: str) -> Any:
    """The components of a ready-made agent, or of a file."""
    path = AGENTS / f"{agent}.yaml" if agent in GRID_AGENTS else Path(agent).expanduser()
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
        if len(raw) > LARGEST_FILE:
            raise ValueError(f"larger than {LARGEST_FILE} bytes, which no agent is")
        return parse_yaml(raw.decode("utf-8"))
    except OSError as error:
        raise SettingsError(f"agent={agent}: cannot be read: {error.strerror or error}.") from error
    except (UnicodeDecodeError, ValueError) as error:
        raise SettingsError(f"agent={agent}: {error}.") from error


def load_class(py_agent: str) -> type[Policy]:
    """FILE.py:CLASS, run from its file."""
    file, _, name = py_agent.rpartition(":")
    module = load_file(file, f"py_agent={py_agent}")
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, Policy):
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Policy)]
        own = [key for key in classes if vars(module)[key].__module__ == module.__name__]
        raise SettingsError(
            f"py_agent={py_agent}: {name} is not a policy class there. Policies in it: {', '.join(own) or 'none'}."
        )
    return found


def load_file(file: str, asked: str) -> ModuleType:
    """The module of a file that a user named in so many words, and so trusts. asked: those words, for errors."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise SettingsError(f"{asked}: there is no file {file}.")
    name = f"holdfast_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles inside it look themselves up
    try:
        with importing_beside(path):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {first_line(error)}{place_of(error)}"
        raise SettingsError(f"{asked}: the file cannot be run: {said}") from error
    return module


@contextmanager
def importing_beside(file: Path) -> Iterator[None]:
    """Modules beside a file can be imported, as by a script. Afterwards they come last: functions may import later on."""
    folder = str(file.absolute().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:  # the file may have tidied up itself
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


def _make_own(kind: type[Policy], py_agent: str, spec: WorldSpec, options: dict[str, Any]) -> Policy:
    """An own class takes the world, and of the common settings those that were changed."""
    kwargs = options.pop("kwargs")
    changed = {key: value for key, value in options.items() if not (key == "memory_scope" and value == "episode")}
    try:
        return kind(spec, **changed, **kwargs)
    except TypeError as error:
        given = ", ".join(["world", *(f"{name}={value!r}" for name, value in (changed | kwargs).items())])
        raise SettingsError(f"py_agent={py_agent}: {error}.\nIt was called with ({given}).") from error
    except SystemExit as error:  # it would end the command with the exit code of a success
        raise SettingsError(f"py_agent={py_agent}: it ends the process when it is made{place_of(error)}.") from error


def _options(settings: PolicySection) -> dict[str, Any]:
    """Constructor arguments; what the settings leave to the agent is left out."""
    options: dict[str, Any] = settings.model_dump(exclude={"agent", "py_agent", "init", "compile", "weights"})
    names = {"hidden": "hidden_size", "layers": "num_layers"}
    return {names.get(key, key): value for key, value in options.items() if value not in (None, "own")}
