"""Context: the probe that checks measure with. It keeps the measurements that several checks share."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor, nn

from holdfast.audit import dependence
from holdfast.audit.compare import differences, state_differences, until_actions_differ
from holdfast.audit.dependence import DependencyMap, differentiable, differentiate, has_gradient, random_projection
from holdfast.audit.findings import SAME, Check, Tally
from holdfast.audit.probe import Probe
from holdfast.audit.script import ACT, LONG, LONG_RESETS, SEQUENCE, STEP, Script, Trace
from holdfast.audit.subject import ACTIONS, NotOfferedError, Outputs, State, Subject


class Context(Probe):
    def __init__(self, subject: Subject, seed: int, declared: frozenset[str]):
        super().__init__(subject, seed)
        self.declared = declared
        self.nan_found_by = ""  # the first check in which the policy returned NaN
        self.maps: dict[tuple[str, str], DependencyMap] = {}  # by (changes or gradients, form)
        self.flag_maps: list[DependencyMap] = []
        self._long_runs: dict[str, Trace] = {}

    def require_module(self) -> nn.Module:
        if self.subject.module is None:
            raise NotOfferedError("no `module` is set, so the weights are unknown")
        return self.subject.module

    def trainable_weights(self) -> dict[str, nn.Parameter]:
        weights = {name: x for name, x in self.require_module().named_parameters() if x.requires_grad}
        if not weights:
            raise NotOfferedError("`module` has no trainable parameters")
        return weights

    def has_layers(self, leaf: Tensor) -> bool:
        """Whether the first axis of a state tensor is layers."""
        return self.subject.layered and self.subject.slot_axis == 1 and leaf.dim() == 3

    @property
    def learning_resets(self) -> bool:
        """Whether learning is expected to reset at episode starts."""
        return "learning_without_resets" not in self.declared

    def excuses(self, check: Check) -> frozenset[str]:
        """Return the declared deviations, without zero_start_states if learning does use its start state."""
        if "zero_start_states" not in self.declared.intersection(check.excused_by) or SEQUENCE not in self.forms:
            return self.declared
        found = self.changes(SEQUENCE)
        moved, _, _ = found.largest(found.from_start_state)
        return self.declared - {"zero_start_states"} if moved > SAME else self.declared

    @torch.no_grad()
    def changes(self, form: str) -> DependencyMap:
        if ("changes", form) not in self.maps:
            self.maps["changes", form] = dependence.map_of_changes(self, form)
        return self.maps["changes", form]

    def gradients(self, form: str) -> DependencyMap:
        if ("gradients", form) not in self.maps:
            self.maps["gradients", form] = dependence.map_of_gradients(self, form)
        return self.maps["gradients", form]

    @torch.no_grad()
    def measure_flags(self) -> None:
        """Measure the maps of flags, which only the page of an audit shows."""
        for form in self.forms:
            # A policy that raises here fails checks, too, which report it.
            with suppress(Exception, SystemExit):
                self.flag_maps += dependence.maps_of_flags(self, form)

    @cached_property
    def long_script(self) -> Script:
        return self.script(T=LONG, B=len(LONG_RESETS), resets=LONG_RESETS, initial=True)

    @cached_property
    def long_rounding(self) -> float:
        """How far two runs of `long_script` may differ, if one rounds differently than the other at every step."""
        return 10 * self.rounding_growth(self.long_script)

    def long_run(self, form: str) -> Trace:
        """Run `long_script`. Learning scores the actions of `step`; to save time, `act` runs slots 0 and 1 only."""
        if form not in self._long_runs:
            script, some = self.long_script, [0, 1]
            if form == ACT:
                script = Script(script.obs[:, some], script.first[:, some], self.select_slots(script.start, some))
            actions = self.long_run(STEP).actions if form == SEQUENCE else None
            self._long_runs[form] = self.run(form, script, actions)
        return self._long_runs[form]

    def forms_with_gradients(self) -> list[str]:
        """Return those of step and sequence that record gradients; acting often does not."""
        found, reason = [], NotOfferedError("neither step nor sequence records gradients")
        for form in self.pure_forms:
            try:
                self.gradients(form)
            except NotOfferedError as error:
                reason = error
                continue
            found.append(form)
        if not found:
            raise reason
        return found

    def expect_no_influence(self, tally: Tally, form: str, cells: Tensor) -> None:
        """Expect that no output moved in these cells [1 + T, B, T, B] of the map of changes."""
        found = self.changes(form)
        if (cells & found.measured).any():
            size, output, source = found.largest(cells)
            tally.expect_unchanged(form, size, f"{output} moved by {size:.2g} when {source} changed")

    def expect_no_gradient(self, tally: Tally, form: str, cells: Tensor) -> None:
        """Expect that these cells of the map of gradients are zero, and that the allowed ones are finite."""
        found = self.gradients(form)
        most, output, source = found.largest(found.allowed)
        size, forbidden, by = found.largest(cells)
        if not most and not size:
            return  # no gradient anywhere, so nothing to keep apart
        tally.expect(form, math.isfinite(most), f"the gradient of {output} with respect to {source} is {most}")
        message = f"the gradient of {forbidden} with respect to {by} is {size:.2g} instead of 0"
        tally.expect_unchanged(form, size, message, limit=found.limit)

    @torch.enable_grad()
    def projected_outputs(self, form: str, script: Script, actions: Tensor | None) -> tuple[Tensor, dict[int, Tensor]]:
        """Return the outputs, randomly projected to [T, B], and the start-state tensors that require grad, by index."""
        start = differentiable(script.start)
        outputs = self.run(form, replace(script, start=start), actions).outputs
        total = random_projection({name: y for name, y in outputs.items() if y.requires_grad})
        return total, {i: leaf for i, leaf in enumerate(start) if leaf.requires_grad}

    @torch.enable_grad()
    def gradients_by_start(self, form: str, script: Script, actions: Tensor | None) -> list[Tensor]:
        """Return the gradient of all outputs with respect to each floating-point tensor of the start state."""
        try:
            total, leaves = self.projected_outputs(form, script, actions)
        except NotOfferedError:  # no output has a gradient
            return [torch.zeros_like(leaf) for leaf in script.start if has_gradient(leaf)]
        return [*differentiate(total.sum(), [*leaves.values()])] if leaves else []

    def start_state_influence(self, form: str, steps: tuple[int, ...]) -> tuple[list[int], Tensor, Tensor]:
        """Measure how strongly the start state affects the outputs of these steps of an episode.

        Return the indices of the n state tensors that need a gradient, how far each of them moves outputs [n, steps],
        and the largest gradient that each gets [n, steps]. Gradients are taken both before and after the change,
        because one of the two may be zero at the kink of a ReLU or maximum.
        """
        script = self.script(T=steps[-1] + 1, B=3)
        usual = self.run(form, script)
        other = replace(script, start=self.random_state(script.first.shape[1]))
        before, after = (self._gradients_at(form, shown, usual.actions, steps) for shown in (script, other))
        numbers = [i for i in before if i not in self.subject.no_gradient]
        moved = torch.zeros(len(numbers), len(steps), dtype=torch.float64)
        for row, i in enumerate(numbers):
            changed = self.run(form, script.with_start_leaf(i, other.start[i]), usual.actions)
            moved[row] = differences(usual.outputs, changed.outputs)[list(steps)].amax(1)
        gradients = [torch.maximum(before[i], after[i]) for i in numbers]
        return numbers, moved, torch.stack(gradients) if gradients else torch.zeros_like(moved)

    @torch.enable_grad()
    def _gradients_at(
        self, form: str, script: Script, actions: Tensor | None, steps: tuple[int, ...]
    ) -> dict[int, Tensor]:
        """Return, for each start state tensor (by index), the largest gradient it gets from each of these steps."""
        total, leaves = self.projected_outputs(form, script, actions)
        if not leaves:
            return {}
        rows = [differentiate(total[t].sum(), [*leaves.values()]) for t in steps]
        return {i: torch.stack([row[n].abs().amax() for row in rows]) for n, i in enumerate(leaves)}

    @cached_property
    def actions_feed_back(self) -> bool:
        """Whether sampled actions enter the state, so that two runs on the same inputs differ once their actions differ."""
        script = self.script()
        one, two = (self.run(STEP, script, draw=draw).outputs for draw in (1, 2))
        if ACTIONS not in one:
            return False
        apart, alike = differences(one, two), until_actions_differ(one, two)
        if not (apart > SAME).any() or (apart[alike] > SAME).any():
            return False
        return bool(alike[1:].any()) or self._equal_actions_give_equal_outputs(script, one[ACTIONS])

    def _equal_actions_give_equal_outputs(self, script: Script, actions: Tensor) -> bool:
        """Whether `sequence` repeats its outputs for equal actions: only actions then enter the state, no noise."""
        if SEQUENCE not in self.forms:
            return False
        one, two = (self.run(SEQUENCE, script, actions, draw=draw).outputs for draw in (1, 2))
        return float(differences(one, two).max()) <= SAME

    def difference_ignoring_draws(self, a: Outputs, b: Outputs) -> float:
        """Return how far two runs differ, apart from the effects of sampling different actions."""
        apart = differences(a, b)
        return float((apart[until_actions_differ(a, b)] if self.actions_feed_back else apart).max())

    def replay_limit(self, script: Script, actions: Tensor | None) -> float:
        """Return how far replayed outputs may differ, given that, for example, an inverted tanh magnifies rounding."""
        if actions is None or not actions.is_floating_point():
            return SAME
        one, other = (
            {name: y for name, y in self.run(SEQUENCE, script, taken).outputs.items() if name != ACTIONS}
            for taken in (actions, torch.nextafter(actions, torch.zeros_like(actions)))
        )
        return SAME + 10 * float(differences(one, other).max())

    def rounding_growth(self, script: Script, since: int = 5) -> float:
        """Return how far a change of the state at a step, as small as rounding, moves later outputs without resets."""
        script = replace(script, first=torch.zeros_like(script.first))
        if since:
            before = replace(script, obs=script.obs[:since], first=script.first[:since])
            script = Script(script.obs[since:], script.first[since:], self.run(STEP, before).final)
        return float(self.compare(STEP, script, replace(script, start=self.scaled(script.start, 1 + 1e-6))).max())

    def scaled(self, state: State, factor: float) -> State:
        """Multiply the tensors of a state that are not counters or masks."""
        return tuple(leaf * factor if self.is_continuous(i, leaf) else leaf for i, leaf in enumerate(state))

    def state_difference(self, a: State, b: State) -> float:
        apart = state_differences(a, b, self.subject.slot_axis)
        return float(apart.max()) if len(apart) else 0.0  # a policy without memory has no tensors

    def memory_change(self, kept: State, cause: str) -> tuple[float, str]:
        """Return how far the policy's memory differs from `kept`, and a message that names the cause."""
        size = self.state_difference(kept, self.subject.get_memory())
        return size, f"{cause} changed the policy's memory by {size:.2g}"
