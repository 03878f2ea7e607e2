"""What a policy retains between calls: tensors and containers that can be reached from it, and its weights."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.audit.probe import Probe
from holdfast.audit.subject import NotOfferedError, Subject

ATOMS = (str, bytes, int, float, type(None), type, torch.dtype, ModuleType)


def retained_tensors(subject: Subject) -> list[tuple[str, Tensor]]:
    """Return every tensor that can be reached from the policy, parameters aside, with its attribute path."""
    return [(name, x) for name, x in _retained(subject) if isinstance(x, Tensor) and not isinstance(x, nn.Parameter)]


def retained_sizes(subject: Subject) -> Counter[str]:
    """Return, by attribute path, the bytes of reachable tensors and arrays, and the entries of lists and dicts."""
    sizes: Counter[str] = Counter()
    for name, thing in _retained(subject):
        sizes[name] += _size(thing)
    return sizes


def weights_without_memory(probe: Probe, module: nn.Module) -> dict[str, Tensor]:
    """Return copies of parameters and buffers, without buffers that hold memory (those that set_memory changes)."""
    states = [probe.random_state(4) for _ in range(2)]  # two, because a counter may be equal in one
    weights = copy_tensors(module)
    with suppress(NotOfferedError):
        for state in states:
            probe.subject.set_memory(state)
            now = copy_tensors(module)
            weights = {name: x for name, x in now.items() if name in weights and torch.equal(x, weights[name])}
    return weights


def copy_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of parameters and buffers by name."""
    return {name: x.detach().clone() for name, x in (*module.named_parameters(), *module.named_buffers())}


def _retained(subject: Subject) -> Iterator[tuple[str, Any]]:
    """Yield (path, object) for everything that the policy retains. Attribute names of Holdfast's own adapters are left out."""
    adapter, seen = type(subject).__module__.startswith("holdfast."), {id(subject)}
    for key, value in list(vars(subject).items()):
        yield from _walk(value, "" if adapter else key, seen)


def _walk(thing: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield (path, object) of every reachable tensor, array and container once."""
    if id(thing) in seen or isinstance(thing, ATOMS):
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor | np.ndarray):
        yield name or "tensor", thing
    elif isinstance(thing, dict):
        yield name, thing
        for key, value in list(thing.items()):
            yield from _walk(value, f"{name}[{key!r}]", seen)
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        yield name, thing
        for i, value in enumerate(thing):
            yield from _walk(value, f"{name}[{i}]", seen)
    elif isinstance(thing, FunctionType | MethodType | partial):
        for inner, held in _captured_by(thing):
            yield from _walk(held, f"{name}.{inner}".lstrip("."), seen)
    elif hasattr(thing, "__dict__"):
        computed = _computed_weights(thing) if isinstance(thing, nn.Module) else set()
        for key, value in list(vars(thing).items()):
            if key in ("_parameters", "_buffers", "_modules"):  # shown under the names that users know
                for inner, held in list(value.items()):
                    yield from _walk(held, f"{name}.{inner}".lstrip("."), seen)
            elif key not in computed:
                yield from _walk(value, f"{name}.{key}".lstrip("."), seen)


def _captured_by(code: FunctionType | MethodType | partial[Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a function can reach besides its arguments: closures, and containers and tensors among its globals."""
    if isinstance(code, partial):
        yield from (("func", code.func), ("args", code.args), ("keywords", code.keywords))
    elif isinstance(code, MethodType):
        yield from ((type(code.__self__).__name__, code.__self__), (code.__name__, code.__func__))
    elif (code.__module__ or "").partition(".")[0] not in ("torch", "holdfast"):
        for name, cell in zip(code.__code__.co_freevars, code.__closure__ or (), strict=True):
            with suppress(ValueError):  # the cell is still empty
                yield name, cell.cell_contents
        for name in code.__code__.co_names:
            held = code.__globals__.get(name)
            if isinstance(held, Tensor | np.ndarray | dict | list | set | deque):
                yield name, held


def _computed_weights(module: nn.Module) -> set[str]:
    """Return the attributes that weight_norm and spectral_norm compute from parameters in every call."""
    return {name.rpartition("_")[0] for name in module._parameters if name.endswith(("_g", "_orig"))}


def _size(thing: Any) -> int:
    if isinstance(thing, Tensor):
        return thing.numel() * thing.element_size()
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    bounded = isinstance(thing, deque) and thing.maxlen is not None
    return 0 if bounded else len(thing)
