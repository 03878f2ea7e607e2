"""Probe: shows a subject scripts of observations and episode starts, in each form it can run them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from holdfast.audit.compare import UnusableError, check_outputs, exact, pair, stacked
from holdfast.audit.subject import ACTIONS, NotOfferedError, Outputs, State, Subject

STEPPING, SEQUENCE, ACTING = "stepping", "sequence", "acting"  # pure steps | one call for all steps | from kept memory
T, B = 6, 4
# Episodes that begin inside, twice in a row, at the first step and at the last.
AWKWARD_ENDS: dict[int, list[int]] = {0: [2], 1: [1, 2], 3: [0, 5]}
POOL = 48


@dataclass(frozen=True)
class Script:
    """T steps of B slots: what they see, where episodes begin, the state they start from."""

    obs: Tensor  # [T, B, ...]
    first: Tensor  # [T, B] bool
    start: State
    ended_by: str = ""  # terminated, truncated or both, for forms that can tell

    def with_obs(self, t: int, b: int, obs: Tensor) -> Script:
        changed = self.obs.clone()
        changed[t, b] = obs
        return replace(self, obs=changed)

    def with_first(self, first: Tensor) -> Script:
        return replace(self, first=first)

    def copy(self) -> Script:
        """Tensors of its own. Gradients reach those it was copied from."""
        start = tuple(leaf.clone() for leaf in self.start)
        return replace(self, obs=self.obs.clone(), first=self.first.clone(), start=start)


@dataclass(frozen=True)
class Trace:
    """What came out, [T, B, ...] by name, and the state after the last step if the form hands one back."""

    outputs: Outputs
    final: State


class Probe:
    """One subject, one seed. Every run of a form starts from the same random numbers, so only the script differs."""

    def __init__(self, subject: Subject, seed: int = 0):
        self.subject = subject
        self.seed = seed
        self.generator = torch.Generator().manual_seed(seed)
        self.pool = subject.observations(POOL, self.generator)
        if not isinstance(self.pool, Tensor):
            raise UnusableError(f"observations gave {type(self.pool).__name__}: a tensor [N, ...] is needed.")
        if len(self.pool) != POOL:
            raise UnusableError(f"observations({POOL}) gave {len(self.pool)}: they have to be [{POOL}, ...].")
        if bool((self.pool == self.pool[:1]).all()):
            raise UnusableError(f"observations({POOL}) are all alike, so nothing could be seen to answer to them.")
        self._drawn = 0

    # ------------------------------------------------------------------------------------------------- scripts

    def script(self, T: int = T, B: int = B, ends: dict[int, list[int]] | None = None, blank: bool = False) -> Script:
        """Observations from the pool, no two successive ones alike; ends: {slot: steps that open an episode}."""
        first = torch.zeros(T, B, dtype=torch.bool)
        for slot, steps in (ends or {}).items():
            first[steps, slot] = True
        start = self.subject.initial_state(B) if blank else self.any_state(B)
        return Script(self.pool[self._numbers(T * B)].unflatten(0, (T, B)), first, start)

    def any_state(self, B: int) -> State:
        """A state that differs everywhere, in every layer, slot and leaf, and is large enough to show.

        What is no real number in it (a step counter, say), or only selects, is as a few steps left it: noise would mean nothing
        there.
        """
        state = self.check_state(self.subject.initial_state(B), B, "initial_state")
        real = [
            (leaf.is_floating_point() or leaf.is_complex()) and i not in self.subject.no_gradient
            for i, leaf in enumerate(state)
        ]
        if not all(real):
            with torch.no_grad():
                for row in self.pool[self._numbers(3 * B)].unflatten(0, (3, B)):
                    state = self.subject.step(row, state, torch.zeros(B, dtype=torch.bool))[1]
        return tuple(
            torch.randn(leaf.shape, generator=self.generator, dtype=leaf.dtype if leaf.is_complex() else None).to(leaf)
            * 0.7
            if is_real
            else leaf
            for leaf, is_real in zip(state, real, strict=True)
        )

    def other_obs(self, obs: Tensor) -> Tensor:
        """One from the pool that differs from this as much as any."""
        distance = (exact(self.pool) - exact(obs)).abs().reshape(POOL, -1).sum(1)
        return self.pool[int(distance.argmax())]

    def placed(self, state: State, b: int, source: State, row: int) -> State:
        """`state`, with slot b taken from `row` of `source`."""
        axis, mixed = self.subject.slot_axis, []
        for leaf, other in zip(state, source, strict=True):
            leaf = leaf.clone()
            leaf.select(axis, b).copy_(other.select(axis, row))
            mixed.append(leaf)
        return tuple(mixed)

    def rows(self, state: State, slots: list[int]) -> State:
        """Only these slots, in this order."""
        return tuple(leaf.index_select(self.subject.slot_axis, torch.tensor(slots)).contiguous() for leaf in state)

    def _numbers(self, n: int) -> Tensor:
        """n numbers of observations, going round the pool, so that neighbours differ."""
        numbers = (torch.arange(n) + self._drawn) % POOL
        self._drawn += n
        return numbers

    # --------------------------------------------------------------------------------------------------- forms

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        """By form that this subject has: the names of its outputs, without drawn actions."""
        script, names = self.script(blank=True), {}
        for form in (STEPPING, SEQUENCE, ACTING):
            try:
                outputs = self.run(form, script).outputs
            except NotOfferedError:
                if form == STEPPING:
                    raise
                continue
            names[form] = [name for name in outputs if name != ACTIONS]
        return names

    @property
    def forms(self) -> list[str]:
        """What this subject can do: each check of behaviour in time looks at every one of them."""
        return [*self._names]

    @property
    def not_scored(self) -> tuple[str, ...]:
        """Names of outputs that single steps give and sequences do not."""
        scored = self._names.get(SEQUENCE, self._names[STEPPING])
        return tuple(name for name in self._names[STEPPING] if name not in scored)

    def check_forms_agree(self) -> None:
        """Refuses a subject whose learning cannot be compared with its acting at all."""
        if self.not_scored and set(self.not_scored) == set(self._names[STEPPING]):
            one, other = (", ".join(self._names[form]) for form in (STEPPING, SEQUENCE))
            raise UnusableError(f"step puts out {one}, and sequence {other}: give the same things the same names.")

    @property
    def pure_forms(self) -> list[str]:
        return [form for form in self.forms if form != ACTING]

    def needs(self, form: str) -> None:
        """Raises NotOfferedError with the subject's own words if it has no such form."""
        if form not in self.forms:
            self.run(form, self.script(blank=True))

    def run(
        self, form: str, script: Script, actions: Tensor | None = None, draw: int = 0, copies: bool = True
    ) -> Trace:
        """Show the script in this form. actions: those to score; sequences score what stepping takes if left out.

        The policy is handed copies, so that one that writes into them spoils nothing of what is shown next.
        """
        if form == SEQUENCE and actions is None:
            actions = self.run(STEPPING, script).outputs.get(ACTIONS)
            actions = None if actions is None else actions.detach()
        seed_draws(self.seed * 1000 + draw)
        shown = script.copy() if copies else script
        if form == STEPPING:
            trace = self._step_through(shown)
        elif form == SEQUENCE:
            trace = self._all_at_once(shown, actions)
        else:
            trace = self._act_through(shown)
        self._check_outputs(form, trace.outputs, *script.first.shape)
        if form == SEQUENCE and actions is not None:
            trace = Trace({**trace.outputs, ACTIONS: actions}, trace.final)
        return trace

    def _check_outputs(self, form: str, outputs: Outputs, T: int, B: int) -> None:
        check_outputs(outputs, form)
        for name, output in outputs.items():
            if output.shape[:2] != (T, B):
                raise UnusableError(
                    f"{form} gave {name} of shape {[*output.shape]} for {T} steps of {B} slots: [{T}, {B}, ...] is needed."
                )
            if output.isnan().any():
                raise UnusableError(f"{form} gave {name} that is not a number.")

    def check_state(self, state: State, B: int, source: str) -> State:
        """A state has to be a tuple of tensors with the slots on one axis; anything else would accuse the wrong code."""
        if not isinstance(state, tuple):
            raise UnusableError(f"{source} gave a state of type {type(state).__name__}: a tuple of tensors is needed.")
        for i, leaf in enumerate(state):
            if not isinstance(leaf, Tensor):
                raise UnusableError(
                    f"{source}: entry {i} of the state is a {type(leaf).__name__}: a flat tuple of tensors is needed."
                )
        axis = self.subject.slot_axis
        if any(bool(leaf.isnan().any()) for leaf in state):
            raise UnusableError(f"{source} gave a state that is not a number.")
        for i, leaf in enumerate(state):
            if leaf.dim() <= axis or leaf.shape[axis] != B:
                raise UnusableError(
                    f"{source}: tensor {i} of the state is {[*leaf.shape]} for {B} slots, which are expected on axis "
                    f"{axis}. Set slot_axis."
                )
        return state

    def _step_through(self, script: Script) -> Trace:
        state, steps = script.start, []
        for obs, first in zip(script.obs, script.first, strict=True):
            outputs, state = pair(self.subject.step(obs, state, first), "step")
            self.check_state(state, len(obs), "step")
            steps.append(outputs)
        return Trace(stacked(steps), state)

    def _all_at_once(self, script: Script, actions: Tensor | None) -> Trace:
        if not script.ended_by:
            outputs, final = pair(self.subject.sequence(script.obs, script.start, script.first, actions), "sequence")
            if final != ():
                self.check_state(final, script.first.shape[1], "sequence")
            return Trace(outputs, final)
        if actions is None:
            raise NotOfferedError("it takes no actions, so there is nothing to score")
        return Trace(self.subject.score(script.obs, *flags(script), script.start, actions), ())

    def run_on(self, script: Script) -> Trace:
        """Act from the memory as it is, whatever the script starts from."""
        seed_draws(self.seed * 1000)
        return self._act_on(script)

    def _act_through(self, script: Script) -> Trace:
        if type(self.subject).act is Subject.act:
            raise NotOfferedError("the caller keeps its state")
        self.subject.set_memory(script.start)
        return self._act_on(script)

    def _act_on(self, script: Script) -> Trace:
        slots = torch.arange(script.first.shape[1])
        terminated, truncated = flags(script)
        steps = []
        for t, obs in enumerate(script.obs):
            steps.append(self.subject.act(obs, terminated[t], truncated[t], slots))
        return Trace(stacked(steps), self.check_state(self.subject.get_memory(), len(slots), "get_memory"))


def seed_draws(seed: int) -> None:
    """torch.manual_seed, which without an accelerator also writes down the stack, three times, for devices that are not there."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def flags(script: Script) -> tuple[Tensor, Tensor]:
    """terminated and truncated [T, B]."""
    first, none = script.first, torch.zeros_like(script.first)
    return {"truncated": (none, first), "both": (first, first)}.get(script.ended_by, (first, none))
