"""Checks that memory is used: earlier observations and the start state change later outputs."""

from __future__ import annotations

from dataclasses import replace

import torch

from holdfast.audit.compare import differences, policy_outputs
from holdfast.audit.context import Context
from holdfast.audit.findings import MOVED, Register, Tally
from holdfast.audit.script import MANY, STATE, Script
from holdfast.audit.subject import ACTIONS

CHECKS = Register()
TRIES = 8  # a selective memory may ignore most observations


@CHECKS(excused_by=("memoryless",), quick=True, root=1)
def memory_is_used(ctx: Context, tally: Tally) -> None:
    """Observations change the action distribution at later steps of the episode, not only the value.

    Cost: The policy acts as if it had no memory, and cannot be better than a policy without one.
    Fix: Pass the state of one step to the next: look for a forgotten state argument, a state replaced by zeros, or an
    inverted mask (done instead of 1 - done). If the policy has no memory on purpose, use --declare memoryless.
    """
    for form in ctx.forms:
        size = _effect_on_later_steps(ctx, form, first=False)
        tally.expect_change(form, size, f"no observation changes a later output (largest change {size:.1e})")


@CHECKS(quick=True)
def every_observation_is_used(ctx: Context, tally: Tally) -> None:
    """Observations change the outputs of their own step, in every slot and at every step, including episode starts.

    Cost: The policy cannot react to the observations that it does not use, often the first of each episode.
    Fix: Look for observations that are masked, shifted by a step, or replaced at episode starts.
    """
    for form in ctx.forms:
        found = ctx.changes(form)
        T, B = found.first.shape
        own = torch.zeros_like(found.allowed)
        for t in range(T):
            own[t + 1, :, t] = torch.eye(B, dtype=torch.bool)
        groups = {f"at step {t}": (torch.arange(T) == t)[:, None].expand(T, B) for t in range(T)}
        groups |= {f"of slot {b}": (torch.arange(B) == b).expand(T, B) for b in range(B)}
        inside = found.first & (torch.arange(T) > 0)[:, None]
        groups["that starts an episode at the first step"] = found.first & ~inside
        groups["that starts an episode inside the sequence"] = inside
        # Groups [T, B], because a policy may take a maximum, which a single small observation does not change.
        for which, cells in groups.items():
            chosen = own & torch.cat([torch.zeros_like(cells[:1]), cells])[:, :, None, None]
            size, _, _ = found.largest(chosen)
            tally.expect_change(form, size, f"no observation {which} changes the output of its step ({size:.1e})")
        script = ctx.script(T=1, B=MANY)
        if "value" in ctx.run(form, script).outputs:
            size = _largest_change(ctx, form, script, replace(script, obs=script.obs.roll(1, 1)), ("value",))
            tally.expect_change(form, size, f"no observation changes the value of its step ({size:.1e})")


@CHECKS(excused_by=("memoryless",), quick=True)
def first_observations_are_remembered(ctx: Context, tally: Tally) -> None:
    """The first observation of an episode changes outputs of later steps.

    Cost: What the first observation of an episode shows is lost at the second step, so a cue shown once cannot be used.
    Fix: Reset before the step that gets the first observation, not after it. Look for flags that are one step late.
    """
    for form in ctx.forms:
        size = _effect_on_later_steps(ctx, form, first=True)
        message = f"no first observation of an episode changes a later output (largest change {size:.1e})"
        tally.expect_change(form, size, message)


@CHECKS(needs=(STATE,), look_at="sequence", excused_by=("zero_start_states", "memoryless"), quick=True)
def start_state_is_used(ctx: Context, tally: Tally) -> None:
    """Outputs depend on the start state.

    Cost: Learning starts every segment without memory, so it never learns to use anything from before the segment.
    Fix: Store the state at the start of each segment while acting, and start learning from it.
    """
    for form in ctx.forms:
        size = _effect_of_state(ctx, form)
        tally.expect_change(form, size, f"the start state changes no output (largest change {size:.1e})")


@CHECKS(needs=(STATE,), excused_by=("zero_start_states", "memoryless"))
def every_state_tensor_is_used(ctx: Context, tally: Tally) -> None:
    """Outputs depend on each tensor of the start state.

    Cost: Part of the memory is never read: the policy remembers less than it seems to.
    Fix: Look for a state tensor that is overwritten, zeroed or recomputed at every step. Remove tensors that are not
    memory from the state. If one is only a mask or a counter, list it in no_gradient.
    """
    for form in ctx.forms:
        for i, leaf in enumerate(ctx.subject.initial_state(1)):
            if ctx.is_continuous(i, leaf):  # a counter or a mask may matter only later
                size = _effect_of_state(ctx, form, i)
                tally.expect_change(form, size, f"{ctx.subject.state_name(i)} changes no output ({size:.1e})")


def _effect_of_state(ctx: Context, form: str, i: int | None = None) -> float:
    """Return how strongly the start state, or only its tensor i, affects outputs. Try random states, then visited ones."""
    size = 0.0
    for turn in range(TRIES):
        script = ctx.script(T=3, B=MANY)
        other = ctx.random_state(MANY)
        if turn:
            script, other = replace(script, start=ctx.visited_state(MANY)), ctx.visited_state(MANY)
        changed = replace(script, start=other) if i is None else script.with_start_leaf(i, other[i])
        size = max(size, float(ctx.compare(form, script, changed).max()))
        if size > MOVED:
            break
    return size


def _largest_change(
    ctx: Context, form: str, script: Script, other: Script, names: tuple[str, ...] = (), since: int = 0
) -> float:
    """Return how far outputs of two scripts differ from step `since` on. names: compare these, or else the policy's."""
    usual = ctx.run(form, script)
    outputs = ctx.run(form, other, usual.actions).outputs
    repeatable = ctx.draws_are_repeatable
    # If draws do not repeat, log-probs may belong to different actions; then all outputs are compared.
    if not names and (repeatable or policy_outputs(usual.outputs) != ("log_prob",)):
        names = (*policy_outputs(usual.outputs), ACTIONS)
    return float(differences(usual.outputs, outputs, names, actions_too=repeatable)[since:].max())


def _effect_on_later_steps(ctx: Context, form: str, first: bool) -> float:
    """Return how much other observations at step 0 change later outputs. first: whether step 0 starts an episode."""
    size = 0.0
    for turn in range(TRIES):
        script = ctx.script(T=5, B=MANY, resets={b: [0] for b in range(MANY)} if first else {})
        other = script.obs.clone()
        other[0] = script.obs[0].roll(1 + turn, 0)
        size = max(size, _largest_change(ctx, form, script, replace(script, obs=other), since=1))
        if size > MOVED:
            break
    return size
