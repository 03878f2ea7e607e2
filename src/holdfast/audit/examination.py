"""An examination: one subject under one seed, with what several checks look at measured once."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from holdfast.audit.compare import differences, state_differences, until_actions_differ
from holdfast.audit.dependence import DependencyMap, map_of_changes, map_of_gradients, projected
from holdfast.audit.findings import SAME, Check, Tally
from holdfast.audit.probe import Probe
from holdfast.audit.script import SEQUENCE, STEPPING, Script
from holdfast.audit.subject import ACTIONS, NotOfferedError, Outputs, State, Subject


class Examination:
    def __init__(self, subject: Subject, seed: int = 0, declared: frozenset[str] | None = None):
        self.subject = subject
        self.declared = subject.declared if declared is None else declared
        self.probe = Probe(subject, seed)
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

    def reach_of_the_start(self, form: str, steps: tuple[int, ...]) -> tuple[list[int], Tensor, Tensor]:
        """How far the start state reaches within an episode: numbers n of its tensors that could have a gradient, and by each
        how much outputs of these steps move [n, steps], and the largest gradient they have [n, steps].

        Gradients are taken before and after the change: at the edge of a maximum or a ReLU one of them is zero.
        """
        script = self.probe.script(T=steps[-1] + 1, B=3)
        usual = self.probe.run(form, script).outputs
        actions = usual.get(ACTIONS)
        other = replace(script, start=self.probe.any_state(script.first.shape[1]))
        before, after = (self._gradients_at(form, shown, actions, steps) for shown in (script, other))
        numbers = [i for i in before if i not in self.subject.no_gradient]
        moved = torch.zeros(len(numbers), len(steps), dtype=torch.float64)
        for row, i in enumerate(numbers):
            changed = script.with_start_leaf(i, other.start[i])
            with torch.no_grad():
                apart = differences(usual, self.probe.run(form, changed, actions).outputs)
            moved[row] = apart[list(steps)].amax(1)
        gradients = [torch.maximum(before[i], after[i]) for i in numbers]
        return numbers, moved, torch.stack(gradients) if gradients else torch.zeros_like(moved)

    def _gradients_at(
        self, form: str, script: Script, actions: Tensor | None, steps: tuple[int, ...]
    ) -> dict[int, Tensor]:
        """By number of a tensor of the start state: the largest gradient of the outputs of each of these steps by it."""
        total, leaves = self.mixed_outputs(form, script, actions)
        if not leaves:
            return {}
        rows = [
            torch.autograd.grad(total[t].sum(), [*leaves.values()], retain_graph=True, allow_unused=True) for t in steps
        ]
        return {
            i: torch.stack([torch.zeros(()) if row[n] is None else row[n].abs().amax() for row in rows])
            for n, i in enumerate(leaves)
        }

    def gradients_by_start(self, form: str, script: Script, actions: Tensor | None) -> list[Tensor]:
        """Of everything that is put out by each tensor of the start state that could have one."""
        try:
            total, leaves = self.mixed_outputs(form, script, actions)
        except NotOfferedError:  # no output has any
            return [torch.zeros_like(leaf) for leaf in script.start if leaf.is_floating_point()]
        if not leaves:
            return []
        found = torch.autograd.grad(total.sum(), [*leaves.values()], allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves.values(), found, strict=True)]

    def mixed_outputs(self, form: str, script: Script, actions: Tensor | None) -> tuple[Tensor, dict[int, Tensor]]:
        """Outputs mixed to one number per step and slot [T, B], with their graph, and by number the tensors of the start
        state that it goes back to."""
        start = tuple(leaf.detach().clone().requires_grad_(leaf.is_floating_point()) for leaf in script.start)
        with torch.enable_grad():
            outputs = self.probe.run(form, replace(script, start=start), actions).outputs
            total = projected({name: y for name, y in outputs.items() if y.requires_grad})
        return total, {i: leaf for i, leaf in enumerate(start) if leaf.requires_grad}

    @cached_property
    @torch.no_grad()
    def actions_feed_back(self) -> bool:
        """Whether the policy remembers what it drew: after another action its outputs are others, and until then not."""
        script = self.probe.script()
        one, two = (self.probe.run(STEPPING, script, draw=draw).outputs for draw in (1, 2))
        if ACTIONS not in one:
            return False
        apart, alike = differences(one, two), until_actions_differ(one, two)
        if not (apart > SAME).any() or (apart[alike] > SAME).any():
            return False
        return bool(alike[1:].any()) or self._equal_actions_give_the_same(script, one[ACTIONS])

    def _equal_actions_give_the_same(self, script: Script, actions: Tensor) -> bool:
        """For real actions, of which no two are ever alike: without a sequence to show it, noise could be mistaken for them."""
        if SEQUENCE not in self.probe.forms:
            return False
        one, two = (self.probe.run(SEQUENCE, script, actions, draw=draw).outputs for draw in (1, 2))
        return float(differences(one, two).max()) <= SAME

    def apart_whatever_was_drawn(self, a: Outputs, b: Outputs) -> float:
        """How far two runs are apart whose actions were drawn from other random numbers."""
        apart = differences(a, b)
        return float((apart[until_actions_differ(a, b)] if self.actions_feed_back else apart).max())

    @torch.no_grad()
    def rounding_of_actions(self, script: Script, actions: Tensor | None) -> float:
        """How far scores move with real actions that are rounded otherwise: to take a squash back blows that up."""
        if actions is None or not actions.is_floating_point():
            return 0.0
        one, other = (
            {name: y for name, y in self.probe.run(SEQUENCE, script, taken).outputs.items() if name != ACTIONS}
            for taken in (actions, torch.nextafter(actions, torch.zeros_like(actions)))
        )
        return float(differences(one, other).max())

    @torch.no_grad()
    def rounding_grows_to(self, script: Script) -> float:
        """How far a nudge of the size of rounding, early on, moves outputs by the end of an unbroken episode."""
        calm = script.with_first(torch.zeros_like(script.first))
        head, tail = (replace(calm, obs=calm.obs[part], first=calm.first[part]) for part in (slice(5), slice(5, None)))
        state = self.probe.run(STEPPING, head).final
        nudged = tuple(leaf * (1 + 1e-6) if leaf.is_floating_point() or leaf.is_complex() else leaf for leaf in state)
        one, other = (self.probe.run(STEPPING, replace(tail, start=start)).outputs for start in (state, nudged))
        return float(differences(one, other).max())

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
        found = self.changes(form)
        if not (cells & found.measured).any():
            return
        size, output, source = found.largest(cells)
        tally.still(form, size, f"{form}: {output} moved by {size:.2g} when {source} changed")

    def no_gradient(self, tally: Tally, form: str, cells: Tensor, said: str = "") -> None:
        """None of these cells of the map of gradients may have one, and those that may have to be numbers."""
        found = self.gradients(form)
        most, output, source = found.largest(found.allowed)
        size, answering, by = found.largest(cells)
        if not most and not size:
            return  # there is none anywhere, so nothing was seen to be kept apart
        tally.holds(form, math.isfinite(most), f"{form}: the gradient of {output} by {source} is {most}")
        tally.still(form, size, f"{form}: the gradient of {answering} by {by} is {size:.2g}{said}", limit=found.limit)

    def moved_memory(self, kept: State, doing: str) -> tuple[float, str]:
        """How far memory is from what it was, and how to say so."""
        size = float(state_differences(kept, self.subject.get_memory(), self.subject.slot_axis).max())
        return size, f"{doing} moved the memory that acting continues from by {size:.2g}"
