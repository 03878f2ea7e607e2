"""An examination: one subject under one seed, with what several checks look at measured once."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.audit.dependence import DependencyMap, map_of_changes, map_of_gradients
from holdfast.audit.findings import SAME, Check, Tally
from holdfast.audit.probe import SEQUENCE, Probe, Script, differences, state_differences
from holdfast.audit.subject import ACTIONS, NotOfferedError, State, Subject


class Examination:
    def __init__(self, subject: Subject, seed: int = 0, declared: frozenset[str] | None = None):
        self.subject = subject
        self.declared = subject.declared if declared is None else declared
        self.probe = Probe(subject, seed)
        inside = subject.module.modules() if subject.module is not None else ()
        self._modes = [(module, module.training) for module in inside]
        self.maps: dict[tuple[str, str], DependencyMap] = {}  # those drawn so far: by (changes or gradients, form)

    @torch.no_grad()
    def changes(self, form: str) -> DependencyMap:
        if ("changes", form) not in self.maps:
            self.maps["changes", form] = map_of_changes(self.probe, form)
        return self.maps["changes", form]

    def gradients(self, form: str) -> DependencyMap:
        if ("gradients", form) not in self.maps:
            self.maps["gradients", form] = map_of_gradients(self.probe, form)
        return self.maps["gradients", form]

    def forms_with_gradients(self) -> list[str]:
        """Acting often records none; learning has to."""
        found, reason = [], NotOfferedError("it has no form with gradients")
        for form in self.probe.pure_forms:
            try:
                self.gradients(form)
            except NotOfferedError as error:
                reason = error
                continue
            found.append(form)
        if not found:
            raise reason
        return found

    def leaves_without_gradient(self, form: str) -> list[int]:
        """Tensors of the start state that move outputs, and by which no output has a gradient."""
        script = self.probe.script(T=3)
        usual = self.probe.run(form, script)
        actions = usual.outputs.get(ACTIONS)
        other = self.probe.any_state(script.first.shape[1])
        start = tuple(leaf.detach().clone().requires_grad_(leaf.is_floating_point()) for leaf in script.start)
        with torch.enable_grad():
            outputs = self.probe.run(form, replace(script, start=start), actions).outputs
            total = sum(y.sum() for y in outputs.values() if y.requires_grad)
        lost = []
        for i, leaf in enumerate(start):
            changed = replace(script, start=(*script.start[:i], other[i], *script.start[i + 1 :]))
            moved = differences(usual.outputs, self.probe.run(form, changed, actions).outputs).max()
            if (
                i in self.subject.no_gradient
                or not leaf.requires_grad
                or not moved > SAME
                or not isinstance(total, Tensor)
            ):
                continue
            (gradient,) = torch.autograd.grad(total, [leaf], retain_graph=True, allow_unused=True)
            if gradient is None or not gradient.any():
                lost.append(i)
        return lost

    def gradients_by_start(self, script: Script, actions: Tensor | None) -> list[Tensor]:
        """Of everything a sequence puts out by each tensor of its start state that could have one."""
        start = tuple(leaf.detach().clone().requires_grad_(leaf.is_floating_point()) for leaf in script.start)
        leaves = [leaf for leaf in start if leaf.requires_grad]
        with torch.enable_grad():
            outputs = self.probe.run(SEQUENCE, replace(script, start=start), actions).outputs
            total = sum(y.where(y.isfinite(), 0.0).sum() for y in outputs.values() if y.requires_grad)
        if not leaves or not isinstance(total, Tensor):
            return [torch.zeros_like(leaf) for leaf in leaves]
        found = torch.autograd.grad(total, leaves, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]

    def restore_modes(self) -> None:
        """Every module in the mode it came in: some may be frozen in evaluation mode on purpose."""
        for module, training in self._modes:
            module.training = training

    @property
    def learning_resets(self) -> bool:
        """Whether what learning does after an episode end is to be judged."""
        return "learning_without_resets" not in self.declared

    def excuses(self, check: Check) -> frozenset[str]:
        """What is declared, without what is not so: a start state that moves sequences is used, well or badly."""
        if "zero_start_states" not in self.declared.intersection(check.excused_by) or SEQUENCE not in self.probe.forms:
            return self.declared
        found = self.changes(SEQUENCE)
        moved, _, _ = found.largest(found.from_the_start)
        return self.declared - {"zero_start_states"} if moved > SAME else self.declared

    def has_layers(self, leaf: Tensor) -> bool:
        """Whether the first axis of a tensor of the state is layers."""
        return self.subject.layered and self.subject.slot_axis == 1 and leaf.dim() == 3

    def has_state(self) -> None:
        """For checks that mean nothing without one."""
        if not self.subject.initial_state(1):
            raise NotOfferedError("it has no state")

    # ------------------------------------------------------------------------------- questions that checks share

    def nothing_moves(self, tally: Tally, form: str, cells: Tensor) -> None:
        """None of these cells [1 + T, B, T, B] of the map of changes may have moved."""
        size, output, source = self.changes(form).largest(cells)
        tally.still(form, size, f"{form}: {output} moved by {size:.2g} when {source} changed")

    def something_moves(self, tally: Tally, form: str, cells: Tensor, said: str) -> None:
        """Some of these cells must have moved."""
        size, _, _ = self.changes(form).largest(cells)
        tally.moves(form, size, f"{form}: {said} (largest movement {size:.1e})")

    def largest_gradient(self, tally: Tally, form: str) -> float:
        """Of those that may be there; a policy whose gradients are not numbers fails."""
        found = self.gradients(form)
        size, output, source = found.largest(found.allowed)
        tally.holds(form, math.isfinite(size), f"{form}: the gradient of {output} by {source} is {size}")
        return size if math.isfinite(size) else 0.0

    def moved_memory(self, kept: State, doing: str) -> tuple[float, str]:
        """How far memory is from what it was, and how to say so."""
        size = float(state_differences(kept, self.subject.get_memory(), self.subject.slot_axis).max())
        return size, f"{doing} moved the memory that acting continues from by {size:.2g}"

    # ----------------------------------------------------------------------------------- what a subject holds on to

    def kept_tensors(self) -> list[tuple[str, Tensor]]:
        """Every tensor that can be reached from the policy, by the way to it, other than its weights."""
        found = _things_in(self.subject, "", set())
        return [(name, x) for name, x in found if isinstance(x, Tensor) and not isinstance(x, nn.Parameter)]

    def kept_size(self) -> int:
        """Bytes of tensors and arrays that can be reached from the policy, and one for each entry of a list or dict."""
        return sum(_size(thing) for _, thing in _things_in(self.subject, "", set()))

    def weights(self) -> dict[str, Tensor]:
        """Parameters and buffers, without those buffers that only hold memory."""
        module = self.subject.module
        if module is None:
            raise NotOfferedError("it does not say where its weights are")

        def copies() -> dict[str, Tensor]:
            return {name: x.detach().clone() for name, x in (*module.named_parameters(), *module.named_buffers())}

        before = copies()
        try:
            self.subject.set_memory(self.probe.any_state(4))
        except NotOfferedError:
            return before
        return {name: x for name, x in copies().items() if name in before and torch.equal(x, before[name])}


ATOMS = (str, bytes, int, float, type(None), type, torch.dtype, ModuleType)


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
    elif hasattr(thing, "__dict__"):
        computed = _computed_weights(thing) if isinstance(thing, nn.Module) else set()
        for key, value in list(vars(thing).items()):
            if key in ("_parameters", "_buffers", "_modules"):  # found under the names people know
                for inner, held in list(value.items()):
                    yield from _things_in(held, f"{name}.{inner}".lstrip("."), seen)
            elif key not in computed:
                yield from _things_in(value, f"{name}.{key}".lstrip("."), seen)


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
