"""Checks that episodes are separate: a reset clears everything that came before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from holdfast.audit.compare import differences
from holdfast.audit.context import Context
from holdfast.audit.findings import SAME, Register, Tally
from holdfast.audit.script import ACT, AWKWARD_RESETS, LONG_RESETS, MANY, SCORE, SEQUENCE, STATE, STEP, Script
from holdfast.audit.subject import (
    ACROSS_EPISODES,
    ACTIONS,
    NotANumberError,
    NotOfferedError,
    Outputs,
    PolicyRaisedError,
    UnusableError,
    raised_by_auditor,
)

CHECKS = Register()


def _across_reset(ctx: Context, form: str, slot: int, steps: range) -> Tensor:
    """Return the map cells in which an output of this slot and these steps depends on an input before a reset."""
    across = ctx.changes(form).across_reset
    wanted = torch.zeros_like(across)
    wanted[:, slot, list(steps)] = True
    return across & wanted


@CHECKS(needs=(STATE,), excused_by=ACROSS_EPISODES, quick=True)
def reset_at_first_step(ctx: Context, tally: Tally) -> None:
    """An episode start at the first step of a call clears the start state.

    Cost: Memory leaks from one episode into the next: the policy acts on the wrong past, and returns stay near chance.
    Fix: Apply the flags of the first step too: zero the state of every slot whose episode starts there.
    """
    for form in ctx.forms:
        cells = _across_reset(ctx, form, 2, range(5))
        cells[1:] = False
        ctx.expect_no_influence(tally, form, cells)


@CHECKS(look_at="sequence", excused_by=ACROSS_EPISODES, quick=True)
def reset_inside_sequence(ctx: Context, tally: Tally) -> None:
    """An episode start inside a sequence clears the state, so that nothing before it changes outputs after it.

    Cost: Memory leaks from one episode into the next: the policy acts on the wrong past, and returns stay near chance.
    Fix: Reset inside the sequence: step through time and mask the state by first[t], or split at episode starts.
    """
    for form in ctx.forms:
        ctx.expect_no_influence(tally, form, _across_reset(ctx, form, 1, range(3, 6)))


@CHECKS(look_at="sequence", excused_by=ACROSS_EPISODES)
def reset_at_last_step(ctx: Context, tally: Tally) -> None:
    """An episode start at the last step of a sequence clears the state.

    Cost: One step per horizon runs with the memory of another episode, and so does the bootstrap value after it.
    Fix: Look for loops over range(T - 1) and for flags shifted by one step.
    """
    for form in ctx.forms:
        ctx.expect_no_influence(tally, form, _across_reset(ctx, form, 2, range(5, 6)))


@CHECKS(excused_by=ACROSS_EPISODES)
def reset_on_consecutive_steps(ctx: Context, tally: Tally) -> None:
    """Episode starts at two consecutive steps both clear the state.

    Cost: Episodes of one step leak into the next. They are rare, so the bug shows late and looks like noise.
    Fix: Reset wherever first is set, not where the flag changes.
    """
    for form in ctx.forms:
        ctx.expect_no_influence(tally, form, _across_reset(ctx, form, 3, range(2, 6)))


@CHECKS(needs=(STATE,), excused_by=ACROSS_EPISODES)
def reset_clears_whole_state(ctx: Context, tally: Tally) -> None:
    """A reset clears every tensor of the state, in every layer.

    Cost: Part of the memory survives the end of an episode and leaks into the next.
    Fix: Clear every tensor of the state (an LSTM has two: h and c), in every layer.
    """
    for form in ctx.forms:
        for (i, layer), size in effects_of_start(ctx, form, {0: [0]}).items():
            part = ctx.subject.state_name(i) + ("" if layer is None else f", layer {layer},")
            tally.expect_unchanged(form, size, f"{part} survived a reset and moved an output by {size:.2g}")


def effects_of_start(ctx: Context, form: str, resets: dict[int, list[int]]) -> dict[tuple[int, int | None], float]:
    """Return, by tensor and layer of the start state, how far it moves an output of slot 0. Layer None: all of it."""
    script, effects = ctx.script(T=3, resets=resets), {}
    usual = ctx.run(form, script)
    other = ctx.random_state(script.first.shape[1])
    for i, leaf in enumerate(script.start):
        for layer in range(len(leaf)) if ctx.has_layers(leaf) else [None]:
            changed = leaf.clone()
            part = slice(None) if layer is None else layer
            changed[part] = other[i][part]
            if changed.equal(leaf):
                continue  # such as a mask that has the same value in both states
            outputs = ctx.run(form, script.with_start_leaf(i, changed), usual.actions).outputs
            effects[i, layer] = float(differences(usual.outputs, outputs)[:, 0].max())
    return effects


@CHECKS(excused_by=("boolean_flags",), quick=True)
def integer_flags(ctx: Context, tally: Tally) -> None:
    """Episode-start flags given as integers or floats have the same effect as booleans.

    Cost: Many callers pass flags as integers or floats. Memory is then cleared at the wrong steps or in the wrong
    slots.
    Fix: Convert flags to booleans first (first != 0): an integer tensor used as an index selects slots 0 and 1, and ~
    of the integer 0 is 255 or -1. If every caller passes booleans, use --declare boolean_flags.
    """
    if ctx.subject.fixed_flag_dtype:
        raise NotOfferedError(ctx.subject.fixed_flag_dtype)
    refused = []
    for form in ctx.forms:
        script = ctx.script(resets={0: [3], 1: [1], 2: [1, 4]})
        usual = ctx.run(form, script)
        for dtype in (torch.int64, torch.uint8, torch.float32):
            kind = str(dtype)[6:]
            try:
                outputs = ctx.run(form, replace(script, first=script.first.to(dtype)), usual.actions).outputs
            except Exception as error:
                if isinstance(error, UnusableError) and not isinstance(error, PolicyRaisedError):
                    tally.expect(form, False, f"with {kind} flags, {error}")
                elif raised_by_auditor(error):
                    raise
                else:  # an error is fine: the caller notices it
                    refused.append(f"{form} refuses {kind} flags: {type(error).__name__}")
                continue
            size = float(differences(usual.outputs, outputs).max())
            tally.expect_unchanged(form, size, f"outputs moved by {size:.2g} when flags were {kind}")
    tally.remark = ", ".join(refused)
    if not tally.measured:
        raise NotOfferedError(f"the policy refuses flags that are not boolean ({tally.remark})")


@CHECKS(needs=(STATE,), excused_by=ACROSS_EPISODES)
def reset_with_one_slot(ctx: Context, tally: Tally) -> None:
    """Resets work with a single slot.

    Cost: Evaluation in a single environment never resets, or crashes, although training with many was fine.
    Fix: Look for squeeze() without an axis, and for conditions on first.any() or len(first).
    """
    for form in ctx.forms:
        for at in (0, 2):
            script = ctx.script(T=4, B=1, resets={0: [at]})
            size = float(ctx.compare(form, script, replace(script, start=ctx.random_state(1)))[at:].max())
            message = f"with one slot, the start state moved an output after a reset at step {at} by {size:.2g}"
            tally.expect_unchanged(form, size, message)


@CHECKS(needs=(STATE,), excused_by=ACROSS_EPISODES)
def reset_equals_initial_state(ctx: Context, tally: Tally) -> None:
    """A reset leads to the initial state, whatever came before it, also after an episode of 64 steps.

    Cost: Every episode but the first begins from a different state than evaluation and learning assume.
    Fix: Reset to initial_state, even if it is learned or not zero. Reset wherever first is set, however long the episode
    was.
    """
    for form in ctx.forms:
        script = ctx.script(T=3, B=MANY, resets={b: [0] for b in range(MANY)})
        fresh = replace(script, start=ctx.subject.initial_state(MANY))
        size = float(ctx.compare(form, script, fresh).max())
        tally.expect_unchanged(form, size, f"outputs after a reset are {size:.2g} away from those of the initial state")
        # Without the flag, outputs may differ, because a policy may use the flag as an input too. But they must not be
        # those of a start from zeros, in all tensors or in one, instead of the initial state.
        fresh = replace(fresh, first=torch.zeros_like(script.first))
        if (size := float(ctx.compare(form, script, fresh).max())) > SAME:
            zeros = tuple(torch.zeros_like(leaf) for leaf in fresh.start)
            wrong = [replace(fresh, start=zeros), *(fresh.with_start_leaf(i, leaf) for i, leaf in enumerate(zeros))]
            to_zeros = any(float(ctx.compare(form, script, start).max()) <= SAME for start in wrong)
            message = f"a reset writes zeros, which gives outputs {size:.2g} away from those of the initial state"
            tally.expect(form, not to_zeros, message)
        try:
            _expect_reset_after_long_episode(ctx, tally, form)
        except NotANumberError:
            if SEQUENCE not in ctx.forms:
                raise
            tally.remark = "the policy returns NaN in long episodes"  # steps_equal_sequence reports that


def _expect_reset_after_long_episode(ctx: Context, tally: Tally, form: str) -> None:
    """Expect that slot 0 starts afresh after an episode of 64 steps."""
    script, run = ctx.long_script, ctx.long_run(form)
    begin, at = LONG_RESETS[0]
    after = {name: y[at:] for name, y in run.outputs.items()}
    B = next(iter(after.values())).shape[1]
    first = script.first[at:, :B].clone()
    first[0] = True
    fresh = Script(script.obs[at:, :B], first, ctx.subject.initial_state(B))
    outputs = ctx.run(form, fresh, after.get(ACTIONS)).outputs
    one, other = ({name: y[:, :1] for name, y in given.items()} for given in (after, outputs))
    size = ctx.difference_ignoring_draws(one, other)
    message = (
        f"after an episode of {at - begin} steps, a reset gives outputs {size:.2g} away from those of the initial state"
    )
    tally.expect_unchanged(form, size, message)


@CHECKS(quick=True)
def reset_only_ended_slots(ctx: Context, tally: Tally) -> None:
    """The end of one slot's episode does not reset other slots.

    Cost: Whenever any episode ends, agents in the middle of theirs lose their memory.
    Fix: Mask the state slot by slot, with first as [1, B, 1], not with first.any().
    """
    for form in ctx.forms:
        script = ctx.script(resets={1: [2], 2: [0, 4]})
        apart = ctx.compare(form, script, replace(script, first=torch.zeros_like(script.first)))
        size = float(apart[:, [0, 3]].max())
        tally.expect_unchanged(form, size, f"a slot without a reset moved by {size:.2g} when other slots were reset")


def _outputs_by_end(ctx: Context, tally: Tally, *scripts: Script) -> Iterator[tuple[str, list[Outputs]]]:
    """Run scripts in each call that takes terminated and truncated (act, score). Yield the call and the outputs."""
    actions = ctx.run(STEP, scripts[0]).actions
    for call in (ACT, SCORE):
        try:
            outputs = [ctx.run(call, script, actions).outputs for script in scripts]
        except NotOfferedError as reason:
            tally.remark = f"{call} was not checked: {reason}"
            continue
        yield call, outputs
    if not tally.measured:
        raise NotOfferedError("no act() or score() provided; only these take terminated and truncated")


def _reset_after(ctx: Context, tally: Tally, kind: str) -> None:
    """Expect a reset after an episode that ended in this way."""
    script = replace(ctx.script(T=4, B=3, resets={1: [2]}), ended_by=kind)
    for call, (usual, changed) in _outputs_by_end(ctx, tally, script, replace(script, start=ctx.random_state(3))):
        size = float(differences(usual, changed)[2:, 1].max())
        message = f"memory survived the end of an episode that was {kind} and moved an output by {size:.2g}"
        tally.expect_unchanged(call, size, message)


@CHECKS(needs=(STATE,), look_at="act", excused_by=ACROSS_EPISODES, quick=True)
def reset_on_terminated(ctx: Context, tally: Tally) -> None:
    """Memory is reset after an episode that was terminated.

    Cost: Memory leaks from one episode into the next: the policy acts on the wrong past, and returns stay near chance.
    Fix: Reset on terminated | truncated.
    """
    _reset_after(ctx, tally, "terminated")


@CHECKS(needs=(STATE,), look_at="act", excused_by=ACROSS_EPISODES, quick=True)
def reset_on_truncated(ctx: Context, tally: Tally) -> None:
    """Memory is reset after an episode that was truncated.

    Cost: In worlds whose episodes only end by a time limit (such as Pendulum), memory is never reset.
    Fix: Reset on terminated | truncated. Both end the episode; only the bootstrap value treats them differently.
    """
    _reset_after(ctx, tally, "truncated")


@CHECKS(look_at="act")
def terminated_equals_truncated(ctx: Context, tally: Tally) -> None:
    """A reset is the same whether terminated, truncated or both are set.

    Cost: Memory after a reset depends on how the last episode ended, so the policy acts differently after a time limit.
    Fix: Use one flag per slot, terminated | truncated. Both may be set at once, so do not use ^ or compare a sum with
    1.
    """
    script = ctx.script(resets=AWKWARD_RESETS)
    scripts = [replace(script, ended_by=how) for how in ("terminated", "truncated", "both")]
    for call, (terminated, *others) in _outputs_by_end(ctx, tally, *scripts):
        for how, outputs in zip(("truncated", "both flags"), others, strict=True):
            size = float(differences(terminated, outputs).max())
            tally.expect_unchanged(call, size, f"outputs moved by {size:.2g} with {how} instead of terminated")


@CHECKS(excused_by=("lifetime_memory",))
def last_reward_stays_in_its_episode(ctx: Context, tally: Tally) -> None:
    """The last reward and action of an episode, which arrive with the first observation of the next, change no output.

    Cost: The reward that ended an episode is an input of the next one: the policy starts it differently after a success.
    Fix: Zero the last reward and action where first is set, as memory is. If memory is kept across episodes on purpose, use
    --declare lifetime_memory.
    """
    if not ctx.subject.passes_rewards:
        raise NotOfferedError("passes_rewards is not set: the policy gets no rewards, or only as part of observations")
    for form in ctx.forms:
        script = ctx.script(resets=AWKWARD_RESETS)
        actions, outputs = ctx.run(STEP, script).actions, []
        try:
            for reward in (0.0, 3.0):
                ctx.subject.last_reward = reward
                outputs.append(ctx.run(form, script, actions).outputs)
        finally:
            ctx.subject.last_reward = None
        size = float(differences(*outputs).max())
        tally.expect_unchanged(
            form, size, f"the last reward or action of an episode moved outputs of the next by {size:.2g}"
        )
