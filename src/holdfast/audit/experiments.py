"""Experiments that find a cause in the state, the actions, the weights or the outputs of a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import torch

from holdfast.audit.cause import Cause, by_form
from holdfast.audit.checks.episodes import effects_of_start
from holdfast.audit.checks.weights import run_perturbed
from holdfast.audit.compare import differences
from holdfast.audit.context import Context
from holdfast.audit.findings import SAME
from holdfast.audit.script import ACT, MANY, SEQUENCE, STEP, Script, Trace
from holdfast.audit.subject import ACTIONS, State
from holdfast.errors import name_some

REPEATS = 12  # of 6 steps: more than 64 calls, after which a counter may do something
EXACT = 1e-6  # what explains a difference leaves no more than this of it
HALF_PRECISION = 0.02  # outputs differ by less if they are computed in bfloat16, whose rounding errors are up to 0.004
ONLY_LOG_PROBS = Cause(
    "only log-probs differ in learning; memory and heads agree",
    "Look at the density: the action that is scored, the correction for tanh, the deviation or temperature, and the "
    "sum over the parts of an action.",
)
ONLY_ACTOR = Cause(
    "the action distribution differs in learning, but values agree, so memory does too",
    "Look at the head of the actor: a temperature, deviation, action mask or copy of weights that only one of them uses.",
)
ONLY_CRITIC = Cause(
    "only values differ in learning; the action distribution agrees, so memory does too",
    "Look at the critic: it reads other features or other weights than in acting.",
)
CAST = Cause(
    "learning differs at all steps, and only as much as rounding to bfloat16 does",
    "Look for a cast that only acting or only learning has: autocast, half(), bfloat16, or states stored as such.",
)
STARTS_LATE = Cause(
    "learning starts from the memory after the first step of the segment",
    "Record the state before the first step of a segment, not after it.",
)
STALE_WEIGHTS = Cause(
    "a call does not use the current weights",
    "Compute from the weights in every call. Look for copies, caches, and compiled or scripted modules that are made "
    "only once.",
)
SOME_TENSORS = Cause(
    "a reset clears some tensors of the state, but not others",
    "Clear every tensor of the state where first is set (an LSTM has two: h and c).",
)
SOME_LAYERS = Cause("a reset clears some layers of the state, but not others", "Clear every layer where first is set.")
SCORED_ACTION = Cause(
    "the action that is scored changes the distribution or the value of its own step",
    "Use the scored action only in its log-prob. If the last action is an input, pass that of the step before.",
    (SEQUENCE,),
)
OTHER_MEMORY = Cause(
    "outputs differ from those of single steps, even with all slots in order",
    "Compare what act reads and stores with the state that step gets and returns.",
    (ACT,),
)


@torch.no_grad()
def differs_when_repeated(ctx: Context) -> tuple[str, str] | None:
    """Repeat the same run. Return a form whose outputs changed, and by how much."""
    for form in ctx.forms:
        script = ctx.script()
        actions = ctx.run(STEP, script).actions
        usual = ctx.run(form, script, actions).outputs
        for turn in range(1, REPEATS):
            size = ctx.difference_ignoring_draws(usual, ctx.run(form, script, actions).outputs)
            if size > SAME:
                return (
                    form,
                    f"{form}: repetition {turn} of the same 6 steps gave outputs {size:.2g} away from the first",
                )
    return None


@torch.no_grad()
def partly_reset(ctx: Context) -> Cause | None:
    """Find out whether a reset clears some parts of the state and not others."""

    def of_form(form: str) -> Cause | None:
        free, reset = (effects_of_start(ctx, form, resets) for resets in ({}, {0: [0]}))
        survived = {at for at, size in reset.items() if size > SAME}
        cleared = {at for at, size in free.items() if size > SAME} - survived
        if not survived or not cleared:
            return None
        kept = {i for i, _ in survived}
        if kept & {i for i, _ in cleared}:
            return SOME_LAYERS
        return SOME_TENSORS._replace(detail=f"not {name_some(map(ctx.subject.state_name, sorted(kept)))}")

    return by_form(ctx.forms, of_form)


@torch.no_grad()
def stale_weights(ctx: Context) -> Cause | None:
    """Find weights that change the outputs of one call and not at all those of another."""
    script, weights = ctx.script(initial=True), ctx.trainable_weights()
    before = run_perturbed(ctx, script, ())
    names = set.intersection(*({*trace.outputs} - {ACTIONS} for trace in before.values()))
    unused: dict[str, list[str]] = {form: [] for form in before}
    for name, weight in weights.items():
        after = run_perturbed(ctx, script, [weight])
        sizes = {
            form: float(differences(before[form].outputs, after[form].outputs, (*names,)).max()) for form in before
        }
        for form in before:
            if sizes[form] == 0 and max(sizes.values()) > SAME:
                unused[form].append(name)

    def of_form(form: str) -> Cause | None:
        detail = f"a change of {name_some(unused[form])} has no effect"
        return STALE_WEIGHTS._replace(detail=detail) if unused[form] else None

    return by_form(before, of_form)


class Change(NamedTuple):
    """Something that storing may do to a state."""

    what: str
    fix: str
    detail: str
    apply: Callable[[State], State]


@torch.no_grad()
def memory_changed_by_storing(ctx: Context) -> Cause | None:
    """Find out how acting with stored memory, or learning, differs from a step with the state as an argument."""
    for form in (form for form in ctx.forms if form != STEP):
        script = ctx.script(T=3, B=4)
        one = replace(script, obs=script.obs[:1], first=script.first[:1])
        stepped = ctx.run(STEP, one)
        other = ctx.run(form, one, stepped.actions)
        for change in _changes(ctx, script.start):
            read = ctx.run(STEP, replace(one, start=change.apply(one.start)))
            if _explains(_apart(stepped, other), _apart(read, other)):
                return Cause(f"{change.what} where memory is read", change.fix, (form,), change.detail)
            before, after = (
                ctx.state_difference(state, other.final) for state in (stepped.final, change.apply(stepped.final))
            )
            if form == ACT and _explains(before, after):
                return Cause(f"{change.what} where memory is stored", change.fix, (form,), change.detail)
        if form == ACT and _apart(ctx.run(STEP, script), ctx.run(ACT, script)) > SAME:
            return OTHER_MEMORY
    return None


def _changes(ctx: Context, state: State) -> list[Change]:
    fix = "Store, pass and read the tensors of the state in one order."
    changes = []
    for i, j in combinations(range(len(state)), 2):
        if state[i].shape == state[j].shape and state[i].dtype == state[j].dtype:
            order = [*range(len(state))]
            order[i], order[j] = j, i
            detail = f"{ctx.subject.state_name(i)} and {ctx.subject.state_name(j)}"
            changes.append(
                Change(
                    "two tensors of the state are swapped",
                    fix,
                    detail,
                    lambda s, order=order: tuple(s[k] for k in order),
                )
            )
    for dtype in (torch.float16, torch.bfloat16):
        kind = str(dtype)[6:]
        fix = f"Keep memory in the type of the state: look for half(), {kind} and autocast."
        changes.append(
            Change(
                f"the state is rounded to {kind}",
                fix,
                "",
                lambda s, dtype=dtype: tuple(x.to(dtype).to(x.dtype) if x.is_floating_point() else x for x in s),
            )
        )
    return changes


def _apart(a: Trace, b: Trace) -> float:
    return float(differences(a.outputs, b.outputs).max())


def _explains(before: float, after: float) -> bool:
    """Whether a difference goes away."""
    return before > SAME and after <= EXACT


@torch.no_grad()
def scored_actions_enter(ctx: Context) -> Cause | None:
    """Find out whether the given action changes more than its log-prob, at its own step and only in learning."""
    script = ctx.script(T=1, B=MANY)
    stepped, redrawn = (ctx.run(STEP, script, draw=draw) for draw in (1, 2))
    if stepped.actions is None:
        return None
    whole, other = (ctx.run(SEQUENCE, script, actions) for actions in (stepped.actions, stepped.actions.roll(1, 1)))
    names = tuple({*whole.outputs} & {*stepped.outputs} - {ACTIONS, "log_prob", "entropy"})
    if not names or differences(stepped.outputs, redrawn.outputs, names).max() > SAME:
        return None
    return SCORED_ACTION if differences(whole.outputs, other.outputs, names).max() > SAME else None


@torch.no_grad()
def learning_starts_late(ctx: Context) -> Cause | None:
    """Find out whether learning starts from the memory after the first step."""
    script = ctx.script(T=3)
    stepped = ctx.run(STEP, script)
    late = ctx.run(STEP, Script(script.obs[:1], script.first[:1], script.start)).final
    whole = ctx.run(SEQUENCE, script, stepped.actions)
    return (
        STARTS_LATE
        if _explains(_apart(stepped, whole), _apart(ctx.run(STEP, replace(script, start=late)), whole))
        else None
    )


@torch.no_grad()
def difference_in_learning(ctx: Context) -> Cause | None:
    """Compare single steps with a sequence, within an episode, output by output."""
    script = ctx.script()
    stepped = ctx.run(STEP, script)
    whole = ctx.run(SEQUENCE, script, stepped.actions).outputs
    shared = [name for name in stepped.outputs if name in whole and name != ACTIONS]
    sizes = {name: differences(stepped.outputs, whole, (name,)) for name in shared}
    limit = ctx.replay_limit(script, stepped.actions)
    different = {name for name in shared if sizes[name].max() > limit}
    if different == {"log_prob"}:
        return ONLY_LOG_PROBS
    if different and "value" in shared and different <= {"log_prob", "full_log_probs", "logits", "entropy"}:
        return ONLY_ACTOR
    if different == {"value"} != set(shared):
        return ONLY_CRITIC
    apart = torch.stack([*sizes.values()]).amax(0)
    most = float(apart.max())  # rounding is small, and it is everywhere
    return CAST if different and most < HALF_PRECISION and apart.median() > most / 30 else None
