"""Checks that acting one step at a time and learning from whole sequences give the same outputs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from holdfast.audit.compare import differences
from holdfast.audit.context import Context
from holdfast.audit.findings import SAME, Register, Tally
from holdfast.audit.script import ACT, AWKWARD_RESETS, CHAOTIC, LONG, SCORE, SEQUENCE, STATE, STEP, Script, Trace
from holdfast.audit.subject import NotANumberError, NotOfferedError

CHECKS = Register()
SIZES = ((6, 4), (4, 6), (5, 1))  # (T, B): sizes that expose a mix-up of the two


@CHECKS(look_at="sequence", root=1)
def outputs_are_causal(ctx: Context, tally: Tally) -> None:
    """No output depends on a later observation.

    Cost: In learning, outputs depend on observations that acting had not seen yet: ratios are wrong from the start.
    Fix: Look for a statistic over time (a mean or norm over T), for bidirectional layers, and for (T, B) and (B, T) mixed
    up in a reshape.
    """
    for form in ctx.forms:
        found = ctx.changes(form)
        ctx.expect_no_influence(tally, form, found.same_slot & ~found.not_earlier)


@CHECKS(needs=(SEQUENCE,), look_at="sequence", quick=True, root=1)
def steps_equal_sequence(ctx: Context, tally: Tally) -> None:
    """T single steps give the same outputs as one call of T steps, within an episode.

    Cost: Learning scores a different policy than the one that acted: ratios are not 1, and clipping hides it.
    Fix: Run the same code for one step and for many. Look for (T, B) and (B, T) mixed up in a reshape.
    """
    _compare_all_sizes(ctx, tally, resets={})


@CHECKS(needs=(SEQUENCE,), look_at="sequence", excused_by=("learning_without_resets",), quick=True)
def steps_equal_sequence_across_resets(ctx: Context, tally: Tally) -> None:
    """T single steps give the same outputs as one call of T steps, with episode ends inside.

    Cost: In every segment that contains an episode end, learning uses a different memory than acting did.
    Fix: Reset inside sequences at exactly the steps where acting resets.
    """
    _compare_all_sizes(ctx, tally, resets=AWKWARD_RESETS)


def _compare_all_sizes(ctx: Context, tally: Tally, resets: dict[int, list[int]]) -> None:
    for T, B in SIZES:
        shown = {slot: [t for t in steps if t < T] for slot, steps in resets.items() if slot < B}
        script = ctx.script(T=T, B=B, resets=shown, initial=True)
        _compare(ctx, tally, script, *_step_and_score(ctx, script), 0.0)
    long = ctx.long_script if resets else ctx.script(T=LONG, B=2, initial=True)
    rounding = ctx.long_rounding if resets else 10 * ctx.rounding_growth(long)
    if rounding < CHAOTIC:
        runs = (ctx.long_run(STEP), ctx.long_run(SEQUENCE)) if resets else _step_and_score(ctx, long)
        _compare(ctx, tally, long, *runs, rounding)
    else:
        tally.remark = f"{LONG} steps could not be compared, because rounding errors grow to {rounding:.1g}"


def _step_and_score(ctx: Context, script: Script) -> tuple[Trace, Trace]:
    stepped = ctx.run(STEP, script)
    return stepped, ctx.run(SEQUENCE, script, stepped.actions)


def _compare(ctx: Context, tally: Tally, script: Script, stepped: Trace, whole: Trace, rounding: float) -> None:
    T, B = script.first.shape
    apart = differences(stepped.outputs, whole.outputs)
    size, t, b = float(apart.max()), int(apart.argmax()) // B, int(apart.argmax()) % B
    message = f"one call of {T} steps and {B} slots is {size:.2g} away from single steps (slot {b}, step {t})"
    tally.expect_unchanged(SEQUENCE, size, message, ctx.replay_limit(script, stepped.actions) + rounding)


@CHECKS(needs=(SEQUENCE,), look_at="score")
def score_equals_sequence(ctx: Context, tally: Tally) -> None:
    """score, which takes terminated and truncated flags, gives the same outputs and gradients as sequence.

    Cost: Learning uses other outputs or gradients than those of sequence, which most checks measure.
    Fix: Let score and sequence run the same code, from the same start state, with gradients.
    """
    script = ctx.script(resets=AWKWARD_RESETS)
    actions = ctx.run(STEP, script).actions
    whole, gradients = ctx.run(SEQUENCE, script, actions), ctx.gradients_by_start(SEQUENCE, script, actions)
    most = max((float(leaf.abs().max()) for leaf in gradients), default=0.0)
    for ended_by in ("terminated", "truncated"):
        scored = replace(script, ended_by=ended_by)
        size = float(differences(whole.outputs, ctx.run(SCORE, scored, actions).outputs).max())
        message = f"with episodes that were {ended_by}, outputs are {size:.2g} away from those of sequence"
        tally.expect_unchanged(SCORE, size, message)
        if most:
            others = ctx.gradients_by_start(SCORE, scored, actions)
            size = max(float((x - y).abs().max()) for x, y in zip(gradients, others, strict=True)) / most
            message = f"gradients of the start state differ from those of sequence by {size:.2g} of the largest"
            tally.expect_unchanged(SCORE, size, message, limit=1e-3)  # long sums, rounded in another order


@CHECKS(needs=(STATE, SEQUENCE), look_at="sequence")
def final_state_is_correct(ctx: Context, tally: Tally) -> None:
    """The state after a sequence is the state after the same single steps.

    Cost: Whatever continues after a sequence (burn-in, refreshed states, evaluation) starts from a wrong memory.
    Fix: Return the state after the last real step of every slot. Look for mistakes in padding and packing.
    """
    for resets in ({}, {1: [3], 2: [0, 5], 3: [5]}) if ctx.learning_resets else ({},):
        script = ctx.script(resets=resets, initial=True)
        stepped = ctx.run(STEP, script)
        whole = ctx.run(SEQUENCE, script, stepped.actions)
        if not whole.final:
            raise NotOfferedError("sequence returns no state")
        size = ctx.state_difference(stepped.final, whole.final)
        message = f"the final state is {size:.2g} away from the one after single steps"
        tally.expect_unchanged(SEQUENCE, size, message, limit=10 * SAME)


@CHECKS(needs=(STATE, SEQUENCE), look_at="sequence", excused_by=("zero_start_states",), quick=True)
def replay_from_stored_state(ctx: Context, tally: Tally) -> None:
    """Learning that starts from the memory recorded before a segment gives the same outputs as acting did.

    Cost: Learning uses a different memory than acting did: from a step too late or too early, or of another slot.
    Fix: Record the state before the first step of a segment, and pass every tensor of it to learning in the same order.
    """
    for T, B in ((4, 4), (1, 3), (2, 5), (3, 3)):
        before = ctx.script(T=3, B=B)
        after = ctx.script(T=T, B=B, resets={1: [2]} if T > 2 else {})
        if ACT in ctx.forms:
            ctx.run(ACT, before)
            recorded = ctx.subject.get_memory()
            acted = ctx.continue_acting(after)
        else:
            recorded = ctx.run(STEP, before).final
            acted = ctx.run(STEP, replace(after, start=recorded))
        replayed = replace(after, start=recorded)
        scored = ctx.run(SEQUENCE, replayed, acted.actions)
        upto = T if ctx.learning_resets else 2  # steps after the reset belong to another check
        size = float(differences(acted.outputs, scored.outputs)[:upto].max())
        message = f"replayed from the recorded memory, {T} steps of {B} slots are {size:.2g} away from acting"
        tally.expect_unchanged(SEQUENCE, size, message, ctx.replay_limit(replayed, acted.actions))
    if ACT in ctx.forms and ctx.learning_resets and ctx.long_rounding < CHAOTIC:
        acted = ctx.long_run(ACT).outputs
        B = next(iter(acted.values())).shape[1]
        scored = {name: y[:, :B] for name, y in ctx.long_run(SEQUENCE).outputs.items()}
        size = ctx.difference_ignoring_draws(acted, scored)
        message = f"replayed from the initial state, {LONG} steps of {B} slots are {size:.2g} away from acting"
        tally.expect_unchanged(SEQUENCE, size, message, SAME + ctx.long_rounding)


@CHECKS(needs=(STATE, SEQUENCE), look_at="sequence", excused_by=("zero_start_states",))
def large_states_replay(ctx: Context, tally: Tally) -> None:
    """Acting and learning also agree from start states up to ten times larger than usual.

    Cost: In long episodes memory grows, and from then on learning uses a different memory than acting did.
    Fix: Look for a clamp, clip or normalisation of the state that only acting or only learning applies.
    """
    for form, scale in product([form for form in ctx.forms if form != SEQUENCE], (3, 10)):
        script = ctx.script(T=3, B=3)
        script = replace(script, start=ctx.scaled(script.start, scale))
        try:
            acted = ctx.run(form, script)
        except NotANumberError:  # such a state may be impossible, so this is no failure
            tally.remark = f"states {scale} times larger give NaN"
            continue
        size = float(differences(acted.outputs, ctx.run(SEQUENCE, script, acted.actions).outputs).max())
        message = f"from a start state {scale} times larger, outputs are {size:.2g} away from those of {form}"
        rounding = 10 * ctx.rounding_growth(script, since=0)
        tally.expect_unchanged(SEQUENCE, size, message, ctx.replay_limit(script, acted.actions) + rounding)
