"""What a subject holds on to between calls: tensors and containers that can be reached from it, and its weights."""

from __future__ import annotations

from collections import deque
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


def kept_tensors(subject: Subject) -> list[tuple[str, Tensor]]:
    """Every tensor that can be reached from the policy, by the way to it, other than its weights."""
    found = _things_in(subject, "", set())
    return [(name, x) for name, x in found if isinstance(x, Tensor) and not isinstance(x, nn.Parameter)]


def kept_size(subject: Subject) -> int:
    """Bytes of tensors and arrays that can be reached from the policy, and one for each entry of a list or dict."""
    return sum(_size(thing) for _, thing in _things_in(subject, "", set()))


def weights_of(probe: Probe) -> dict[str, Tensor]:
    """Parameters and buffers, without those buffers that only hold memory: they are what set_memory changes."""
    states = [probe.any_state(4) for _ in range(2)]  # two: a counter may be what it was in one
    weights = copies_of_tensors(probe.subject.module)
    with suppress(NotOfferedError):
        for state in states:
            probe.subject.set_memory(state)
            now = copies_of_tensors(probe.subject.module)
            weights = {name: x for name, x in now.items() if name in weights and torch.equal(x, weights[name])}
    return weights


def copies_of_tensors(module: nn.Module | None) -> dict[str, Tensor]:
    """Parameters and buffers by name."""
    if module is None:
        raise NotOfferedError("it does not say where its weights are")
    return {name: x.detach().clone() for name, x in (*module.named_parameters(), *module.named_buffers())}


def _things_in(thing: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Tensors, arrays and containers, each once, by the way to it: walks attributes, mappings and sequences."""
    if id(thing) in seen or isinstance(thing, ATOMS):
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor | np.ndarray):
        yield name or "tensor", thing
    elif isinstance(thing, dict):
        yield name, thing
        for key, value in list(thing.items()):
            yield from _things_in(value, f"{name}[{key!r}]", seen)
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        yield name, thing
        for i, value in enumerate(thing):
            yield from _things_in(value, f"{name}[{i}]", seen)
    elif isinstance(thing, FunctionType | MethodType | partial):
        for inner, held in _held_by(thing):
            yield from _things_in(held, f"{name}.{inner}".lstrip("."), seen)
    elif hasattr(thing, "__dict__"):
        computed = _computed_weights(thing) if isinstance(thing, nn.Module) else set()
        for key, value in list(vars(thing).items()):
            if key in ("_parameters", "_buffers", "_modules"):  # found under the names people know
                for inner, held in list(value.items()):
                    yield from _things_in(held, f"{name}.{inner}".lstrip("."), seen)
            elif key not in computed:
                yield from _things_in(value, f"{name}.{key}".lstrip("."), seen)


def _held_by(code: FunctionType | MethodType | partial[Any]) -> Iterator[tuple[str, Any]]:
    """What a function can get at besides its arguments, by name: of its module's names only containers and tensors."""
    if isinstance(code, partial):
        yield from (("func", code.func), ("args", code.args), ("keywords", code.keywords))
    elif isinstance(code, MethodType):
        yield from ((type(code.__self__).__name__, code.__self__), (code.__name__, code.__func__))
    elif (code.__module__ or "").partition(".")[0] not in ("torch", "holdfast"):
        for name, cell in zip(code.__code__.co_freevars, code.__closure__ or (), strict=True):
            with suppress(ValueError):  # not filled in yet
                yield name, cell.cell_contents
        for name in code.__code__.co_names:
            held = code.__globals__.get(name)
            if isinstance(held, Tensor | np.ndarray | dict | list | set | deque):
                yield name, held


def _computed_weights(module: nn.Module) -> set[str]:
    """Weights that weight_norm and spectral_norm compute from others in every call, and leave on the module."""
    return {name.rpartition("_")[0] for name in module._parameters if name.endswith(("_g", "_orig"))}


def _size(thing: Any) -> int:
    if isinstance(thing, Tensor):
        return thing.numel() * thing.element_size()
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    bounded = isinstance(thing, deque) and thing.maxlen is not None
    return 0 if bounded else len(thing)
