"""Probe: runs a subject on scripts, in every way it can be called."""

from __future__ import annotations

from functools import cached_property
from itertools import count

import torch
from torch import Tensor

from holdfast.audit.compare import check_outputs, check_pair, differences, stack_steps, to_double
from holdfast.audit.script import ACT, SCORE, SEQUENCE, STATE, STEP, VALUE, VALUE_FROM_MEMORY, B, Script, T, Trace
from holdfast.audit.subject import (
    ACTIONS,
    NotANumberError,
    NotOfferedError,
    Outputs,
    State,
    Subject,
    UnusableError,
    copy_state,
)

POOL = 48  # number of observations that scripts are made from


class Probe:
    """Runs a subject on scripts. Every run uses the same random numbers, so that only the script makes a difference."""

    def __init__(self, subject: Subject, seed: int = 0):
        self.subject = subject
        self.seed = seed
        self.generator = torch.Generator().manual_seed(seed)
        self.pool = subject.observations(POOL, self.generator)
        if not isinstance(self.pool, Tensor):
            raise UnusableError(f"observations returned {type(self.pool).__name__}: return a tensor [N, ...].")
        if len(self.pool) != POOL:
            raise UnusableError(f"observations({POOL}) returned {len(self.pool)}: return a tensor [{POOL}, ...].")
        if bool((self.pool == self.pool[:1]).all()):
            raise UnusableError(f"observations({POOL}) are all equal: the audit needs different ones.")
        self.running = ""  # the current call, for error messages; "" between calls
        self._num_shown = 0
        self._num_states = count()

    def script(
        self, T: int = T, B: int = B, resets: dict[int, list[int]] | None = None, initial: bool = False
    ) -> Script:
        """Make a script from a random start state (or the initial one). resets: {slot: steps that start an episode}."""
        first = torch.zeros(T, B, dtype=torch.bool)
        for slot, steps in (resets or {}).items():
            first[steps, slot] = True
        start = self.subject.initial_state(B) if initial else self.random_state(B)
        # Go round the pool, so that no two successive observations are equal.
        indices = (torch.arange(T * B) + self._num_shown) % POOL
        self._num_shown += T * B
        return Script(self.pool[indices].unflatten(0, (T, B)), first, start)

    def random_state(self, B: int) -> State:
        """Return a random state. Tensors that cannot be random (counters, masks) come from a few real steps instead."""
        state = self.check_state(self.subject.initial_state(B), B, "initial_state")
        if not all(self.is_continuous(i, leaf) for i, leaf in enumerate(state)):
            state = self.visited_state(B)
        return tuple(self._noise(leaf) if self.is_continuous(i, leaf) else leaf for i, leaf in enumerate(state))

    def is_continuous(self, i: int, leaf: Tensor) -> bool:
        """Whether random numbers make sense as tensor i of a state."""
        numbers = (leaf.is_floating_point() or leaf.is_complex()) and leaf.numel() > 0
        return numbers and i not in self.subject.no_gradient

    def _noise(self, leaf: Tensor) -> Tensor:
        dtype = leaf.dtype if leaf.is_complex() else None
        return torch.randn(leaf.shape, generator=self.generator, dtype=dtype).to(leaf) * 0.7

    def visited_state(self, B: int) -> State:
        """Return a state after one to five steps, a different number for each slot and each call."""
        states, most, turn = [self.subject.initial_state(B)], 5, next(self._num_states)
        with torch.no_grad():
            # Drawn at random. In pool order, a call could repeat the observations of the previous one, a step later.
            for row in self.pool[torch.randint(POOL, (most, B), generator=self.generator)]:
                states.append(self.subject.step(row, copy_state(states[-1]), torch.zeros(B, dtype=torch.bool))[1])
        mixed = states[1]
        for b in range(B):
            mixed = self.with_slot(mixed, b, states[1 + (b + turn) % most], b)
        return mixed

    def other_obs(self, obs: Tensor) -> Tensor:
        """Return the observation of the pool that differs most from this one."""
        distance = (to_double(self.pool) - to_double(obs)).abs().reshape(POOL, -1).sum(1)
        return self.pool[int(distance.argmax())]

    def with_slot(self, state: State, b: int, source: State, row: int) -> State:
        """Return `state` with slot b replaced by slot `row` of `source`."""
        axis, mixed = self.subject.slot_axis, []
        for leaf, other in zip(state, source, strict=True):
            leaf = leaf.clone()
            leaf.select(axis, b).copy_(other.select(axis, row))
            mixed.append(leaf)
        return tuple(mixed)

    def select_slots(self, state: State, slots: list[int]) -> State:
        """Return these slots of a state, in this order."""
        return tuple(leaf.index_select(self.subject.slot_axis, torch.tensor(slots)).contiguous() for leaf in state)

    @cached_property
    def output_names(self) -> dict[str, list[str]]:
        """{form: output names without actions}, for those of step, sequence and act that the subject has."""
        script, names = self.script(initial=True), {}
        for form in (STEP, SEQUENCE, ACT):
            try:
                outputs = self.run(form, script).outputs
            except NotOfferedError:
                if form == STEP:
                    raise
                continue
            names[form] = [name for name in outputs if name != ACTIONS]
        return names

    @property
    def forms(self) -> list[str]:
        """Those of step, sequence and act that the subject has."""
        return [*self.output_names]

    @property
    def pure_forms(self) -> list[str]:
        """`forms` without act, which reads and writes memory."""
        return [form for form in self.forms if form != ACT]

    @cached_property
    def calls(self) -> list[str]:
        """`forms`, and those of score, value and value_from_memory that the subject has."""
        calls, script = self.forms, self.script(initial=True)
        for call in (SCORE, VALUE, VALUE_FROM_MEMORY):
            try:
                self.run(call, script)
            except NotOfferedError:
                continue
            except (Exception, SystemExit):  # offered but broken: the first check that uses it reports that
                pass
            calls.append(call)
        return calls

    def require(self, need: str) -> None:
        """Raise NotOfferedError if the subject does not have this form, or has no state."""
        if need == STATE:
            if not self.subject.initial_state(1):
                raise NotOfferedError("the policy has no state")
        elif need not in self.forms:
            self.run(need, self.script(initial=True))

    @cached_property
    @torch.no_grad()
    def draws_are_repeatable(self) -> bool:
        """Whether equal random numbers give equal actions, whatever other slots see.

        False for a policy with its own generator, or if the number of draws depends on the distribution.
        """
        script, other = self.script(), self.script()
        self.run(STEP, other)
        left = torch.get_rng_state()
        one, two = (self.run(STEP, script).outputs for _ in range(2))
        return left.equal(torch.get_rng_state()) and not differences(one, two, actions_too=True).any()

    @property
    def not_scored(self) -> tuple[str, ...]:
        """Names of outputs that `step` returns and `sequence` does not."""
        scored = self.output_names.get(SEQUENCE, self.output_names[STEP])
        return tuple(name for name in self.output_names[STEP] if name not in scored)

    def check_names_agree(self) -> None:
        """Refuse a subject whose `step` and `sequence` have no output in common."""
        if self.not_scored and set(self.not_scored) == set(self.output_names[STEP]):
            one, other = (", ".join(self.output_names[form]) for form in (STEP, SEQUENCE))
            raise UnusableError(f"step returns {one}, and sequence returns {other}: use the same names in both.")

    def check_precision(self) -> None:
        """Refuse a subject that computes in half precision, because its rounding errors would look like bugs."""
        trace = self.run(STEP, self.script(initial=True))
        for kind in {x.dtype for x in (*trace.outputs.values(), *trace.final)} & {torch.float16, torch.bfloat16}:
            raise UnusableError(
                f"the policy computes in {str(kind)[6:]}, where rounding changes outputs as much as bugs do: audit it in float32."
            )

    def run(
        self, call: str, script: Script, actions: Tensor | None = None, draw: int = 0, copies: bool = True
    ) -> Trace:
        """Run a script. actions: the ones to score (those that `step` takes by default). draw: selects random numbers.

        The policy gets copies, so that one that writes into its arguments does not damage the script.
        """
        learns = call in (SEQUENCE, SCORE)
        if learns:
            actions = self.run(STEP, script).actions if actions is None else actions
            actions = None if actions is None else actions.detach()
        self._set_running(call, script)
        seed_draws(self.seed * 1000 + draw)
        given = script.copy() if copies else script
        if learns:
            trace = self._run_at_once(call, given, actions)
        elif call == STEP:
            trace = self._run_steps(given)
        elif call == VALUE:
            shown = zip(given.obs, given.first, strict=True)
            trace = Trace(stack_steps([self.subject.value(obs, given.start, first) for obs, first in shown]), ())
        else:
            trace = self._run_from_memory(call, given)
        self._check_outputs(call, trace.outputs, *script.first.shape)
        self.running = ""
        if learns and actions is not None:
            trace = Trace({**trace.outputs, ACTIONS: actions}, trace.final)
        return trace

    def compare(self, form: str, script: Script, other: Script) -> Tensor:
        """Return [T, B]: how far the outputs of two scripts differ, with the actions of the first scored in both."""
        usual = self.run(form, script)
        return differences(usual.outputs, self.run(form, other, usual.actions).outputs)

    def continue_acting(self, script: Script) -> Trace:
        """Act on a script from the policy's current memory, ignoring the script's start state."""
        self._set_running(ACT, script)
        seed_draws(self.seed * 1000)
        trace = self._act_on(script.copy())
        self.running = ""
        return trace

    def _set_running(self, call: str, script: Script) -> None:
        self.running = "{} with T={} and B={}".format(call, *script.first.shape)

    def _run_steps(self, script: Script) -> Trace:
        state, steps = script.start, []
        for obs, first in zip(script.obs, script.first, strict=True):
            outputs, state = check_pair(self.subject.step(obs, state, first), "step")
            self.check_state(state, len(obs), "step")
            steps.append(outputs)
        return Trace(stack_steps(steps), state)

    def _run_at_once(self, call: str, script: Script, actions: Tensor | None) -> Trace:
        if call == SEQUENCE:
            given = self.subject.sequence(script.obs, script.start, script.first, actions)
            outputs, final = check_pair(given, "sequence")
            if final != ():
                self.check_state(final, script.first.shape[1], "sequence")
            return Trace(outputs, final)
        return Trace(self.subject.score(script.obs, *script.flags, script.start, actions), ())

    def _run_from_memory(self, call: str, script: Script) -> Trace:
        if getattr(type(self.subject), call) is getattr(Subject, call):
            getattr(self.subject, call)(*script.act_inputs(0))  # raises NotOfferedError with the reason
        self.subject.set_memory(copy_state(script.start))
        if call == ACT:
            return self._act_on(script)
        steps = [self.subject.value_from_memory(*script.act_inputs(t)) for t in range(len(script.obs))]
        return Trace(stack_steps(steps), ())

    def _act_on(self, script: Script) -> Trace:
        steps = [self.subject.act(*script.act_inputs(t)) for t in range(len(script.obs))]
        memory = self.check_state(self.subject.get_memory(), script.first.shape[1], "get_memory")
        return Trace(stack_steps(steps), memory)

    def _check_outputs(self, call: str, outputs: Outputs, T: int, B: int) -> None:
        check_outputs(outputs, call)
        for name, output in outputs.items():
            if output.shape[:2] != (T, B):
                raise UnusableError(
                    f"{call} returned {name} of shape {[*output.shape]} for {T} steps of {B} slots: "
                    f"return [{T}, {B}, ...]."
                )
            if output.isnan().any():
                at = int(output.isnan().flatten(1).any(1).nonzero()[0])
                raise NotANumberError(f"{call} returned NaN in {name} at step {at} of {T}.")

    def check_state(self, state: State, B: int, source: str) -> State:
        """Check that a state is a tuple of tensors with B slots on `slot_axis`."""
        if not isinstance(state, tuple):
            raise UnusableError(f"{source} returned a state of type {type(state).__name__}: return a tuple of tensors.")
        axis = self.subject.slot_axis
        for i, leaf in enumerate(state):
            if not isinstance(leaf, Tensor):
                raise UnusableError(
                    f"{source}: entry {i} of the state is a {type(leaf).__name__}: return a flat tuple of tensors."
                )
            if leaf.isnan().any():
                raise NotANumberError(f"{source} returned NaN in the state.")
            if leaf.dim() <= axis or leaf.shape[axis] != B:
                hint = " Set slot_axis." if B in leaf.shape else ""
                raise UnusableError(
                    f"{source}: tensor {i} of the state has shape {[*leaf.shape]}, but needs {B} slots on axis {axis}.{hint}"
                )
        return state


def seed_draws(seed: int) -> None:
    """Seed torch's generator. torch.manual_seed is slow without an accelerator: it records the stack three times."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
