"""Probe: shows a subject scripts of observations and episode starts, in each form it can run them."""

from __future__ import annotations

from functools import cached_property
from itertools import count

import torch
from torch import Tensor

from holdfast.audit.compare import check_outputs, differences, exact, pair, stacked
from holdfast.audit.failing import UnusableError
from holdfast.audit.script import (
    ACTING,
    LOOKING,
    SCORING,
    SEQUENCE,
    STEPPING,
    VALUE,
    B,
    Script,
    T,
    Trace,
    arriving,
    flags,
)
from holdfast.audit.subject import ACTIONS, NotOfferedError, Outputs, State, Subject, copied

POOL = 48


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
        self._states_drawn = count()

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
        if not all(self.is_real(i, leaf) for i, leaf in enumerate(state)):
            state = self.lived_state(B)
        return tuple(self._noise(leaf) if self.is_real(i, leaf) else leaf for i, leaf in enumerate(state))

    def is_real(self, i: int, leaf: Tensor) -> bool:
        """Whether any numbers would do as tensor i of a state."""
        return (leaf.is_floating_point() or leaf.is_complex()) and i not in self.subject.no_gradient

    def _noise(self, leaf: Tensor) -> Tensor:
        dtype = leaf.dtype if leaf.is_complex() else None
        return torch.randn(leaf.shape, generator=self.generator, dtype=dtype).to(leaf) * 0.7

    def lived_state(self, B: int) -> State:
        """What a few steps leave, of another number in each slot and in each call."""
        states, most, turn = [self.subject.initial_state(B)], 5, next(self._states_drawn)
        with torch.no_grad():
            # At random: in turn, what one call sees may be what the one before it saw, a step earlier.
            for row in self.pool[torch.randint(POOL, (most, B), generator=self.generator)]:
                states.append(self.subject.step(row, copied(states[-1]), torch.zeros(B, dtype=torch.bool))[1])
        lived = states[1]
        for b in range(B):
            lived = self.placed(lived, b, states[1 + (b + turn) % most], b)
        return lived

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

    @cached_property
    def calls(self) -> list[str]:
        """Its forms, and whatever else can be asked of it."""
        calls, script = self.forms, self.script(blank=True)
        for call in (SCORING, VALUE, LOOKING):
            try:
                self.run(call, script)
            except NotOfferedError:
                continue
            except (Exception, SystemExit):  # offered, and broken, as the first check that asks for it will find
                pass
            calls.append(call)
        return calls

    @cached_property
    @torch.no_grad()
    def actions_repeat(self) -> bool:
        """Whether the same random numbers draw the same actions, however many slots saw something else.

        Not if a policy has a generator of its own, nor if how many numbers a draw takes depends on what is drawn from.
        """
        script, other = self.script(), self.script()
        self.run(STEPPING, other)
        left = torch.get_rng_state()
        one, two = (self.run(STEPPING, script).outputs for _ in range(2))
        return left.equal(torch.get_rng_state()) and not differences(one, two, actions_too=True).any()

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

    def check_precision(self) -> None:
        """Refuses a subject whose rounding would be taken for bugs."""
        trace = self.run(STEPPING, self.script(blank=True))
        for kind in {x.dtype for x in (*trace.outputs.values(), *trace.final)} & {torch.float16, torch.bfloat16}:
            raise UnusableError(
                f"it computes in {str(kind)[6:]}, whose rounding is as large as bugs are: audit it in float32."
            )

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
        """Show the script in this form, or other call. actions: those to score; what stepping takes if left out.

        The policy is handed copies, so that one that writes into them spoils nothing of what is shown next.
        """
        learns = form in (SEQUENCE, SCORING)
        if learns:
            actions = self.run(STEPPING, script).outputs.get(ACTIONS) if actions is None else actions
            actions = None if actions is None else actions.detach()
        seed_draws(self.seed * 1000 + draw)
        shown = script.copy() if copies else script
        if learns:
            trace = self._all_at_once(form, shown, actions)
        else:
            trace = {
                STEPPING: self._step_through,
                ACTING: self._act_through,
                VALUE: self._value_each,
                LOOKING: self._look_at_each,
            }[form](shown)
        self._check_outputs(form, trace.outputs, *script.first.shape)
        if learns and actions is not None:
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
                hint = " Set slot_axis." if B in leaf.shape else ""
                raise UnusableError(
                    f"{source}: tensor {i} of the state is {[*leaf.shape]} for {B} slots, which are expected on axis "
                    f"{axis}.{hint}"
                )
        return state

    def _step_through(self, script: Script) -> Trace:
        state, steps = script.start, []
        for obs, first in zip(script.obs, script.first, strict=True):
            outputs, state = pair(self.subject.step(obs, state, first), "step")
            self.check_state(state, len(obs), "step")
            steps.append(outputs)
        return Trace(stacked(steps), state)

    def _all_at_once(self, form: str, script: Script, actions: Tensor | None) -> Trace:
        if form == SEQUENCE:
            outputs, final = pair(self.subject.sequence(script.obs, script.start, script.first, actions), "sequence")
            if final != ():
                self.check_state(final, script.first.shape[1], "sequence")
            return Trace(outputs, final)
        if actions is None:
            raise NotOfferedError("it takes no actions, so there is nothing to score")
        return Trace(self.subject.score(script.obs, *flags(script), script.start, actions), ())

    def _value_each(self, script: Script) -> Trace:
        """The value of every observation, each from the start state."""
        shown = zip(script.obs, script.first, strict=True)
        return Trace(stacked([self.subject.value(obs, script.start, first) for obs, first in shown]), ())

    def _look_at_each(self, script: Script) -> Trace:
        """The same from memory."""
        if type(self.subject).look is Subject.look:
            raise NotOfferedError("it has no call that only looks")
        self.subject.set_memory(copied(script.start))
        steps = [self.subject.look(*arriving(script, t)) for t in range(len(script.obs))]
        return Trace(stacked(steps), ())

    def _act_through(self, script: Script) -> Trace:
        if type(self.subject).act is Subject.act:
            raise NotOfferedError("the caller keeps its state")
        self.subject.set_memory(copied(script.start))
        return self._act_on(script)

    def _act_on(self, script: Script) -> Trace:
        steps = [self.subject.act(*arriving(script, t)) for t in range(len(script.obs))]
        memory = self.check_state(self.subject.get_memory(), script.first.shape[1], "get_memory")
        return Trace(stacked(steps), memory)

    def run_on(self, script: Script) -> Trace:
        """Act from the memory as it is, whatever the script starts from."""
        seed_draws(self.seed * 1000)
        return self._act_on(script.copy())


def seed_draws(seed: int) -> None:
    """torch.manual_seed, which without an accelerator also writes down the stack, three times, for devices that are not there."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
