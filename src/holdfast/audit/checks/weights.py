"""Checks of weights: no call changes them, every call uses their current values, and they load with any number of slots."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from holdfast.audit.compare import differences
from holdfast.audit.context import Context
from holdfast.audit.findings import SAME, Register, Tally
from holdfast.audit.probe import Probe
from holdfast.audit.retained import copy_tensors, weights_without_memory
from holdfast.audit.script import ACT, AWKWARD_RESETS, STEP, Script, Trace
from holdfast.audit.sensitivity import perturb, values_restored
from holdfast.audit.subject import UnusableError
from holdfast.errors import name_some

CHECKS = Register()


@CHECKS(quick=True, root=2)
def calls_do_not_change_weights(ctx: Context, tally: Tally) -> None:
    """No call changes weights or running statistics.

    Cost: The policy that learns is not the one that acted: statistics moved in between, so ratios are not 1.
    Fix: Update running statistics between batches only, never in forward. BatchNorm updates them in train mode and mixes
    slots: use LayerNorm.
    """
    module = ctx.require_module()
    names = weights_without_memory(ctx, module).keys()
    for call in ctx.calls:
        script = ctx.script(resets=AWKWARD_RESETS)
        actions = ctx.run(STEP, script).actions
        kept = copy_tensors(module)
        ctx.run(call, script, actions)
        now = copy_tensors(module)
        changed = [name for name in names if name not in now or not torch.equal(now[name], kept[name])]
        tally.expect(call, not changed, f"the call changed {name_some(changed)}")


@CHECKS(look_at="sequence", root=1)
def updated_weights_are_used(ctx: Context, tally: Tally) -> None:
    """After an update, every call uses the new weights, and all calls still agree.

    Cost: Updates reach only part of acting or learning, so the two drift apart with every update.
    Fix: Compute from the weights in every call. Look for copies, caches, and compiled or scripted modules that
    are made only once.
    """
    weights = ctx.trainable_weights()
    script = ctx.script(resets=AWKWARD_RESETS if ctx.learning_resets else {}, initial=True)
    before, after = run_perturbed(ctx, script, ()), run_perturbed(ctx, script, [*weights.values()])
    for form in ctx.forms:
        size = _difference(ctx, before[form], after[form])
        tally.expect_change(form, size, f"new weights change no output ({size:.1e})")
        if _difference(ctx, before[STEP], before[form]) <= ctx.replay_limit(script, before[STEP].actions):
            size = _difference(ctx, after[STEP], after[form])
            message = f"after a change of weights, outputs are {size:.2g} away from those of step"
            tally.expect_unchanged(form, size, message, ctx.replay_limit(script, after[STEP].actions))
        else:
            _compare_dependence(ctx, tally, form, script, weights, before)


def _compare_dependence(
    ctx: Context, tally: Tally, form: str, script: Script, weights: dict[str, nn.Parameter], before: dict[str, Trace]
) -> None:
    """Expect that this form and step depend on the same weights. Used if their outputs differ even before an update."""
    common = before[form].outputs.keys()
    shared = {of: Trace({k: y for k, y in before[of].outputs.items() if k in common}, ()) for of in (STEP, form)}
    for name, weight in weights.items():
        now = run_perturbed(ctx, script, [weight])
        of_step, of_form = (_difference(ctx, shared[of], now[of]) for of in (STEP, form))
        message = f"a change of {name} moves these outputs by {of_form:.2g}, but those of step by {of_step:.2g}"
        tally.expect(form, not (max(of_step, of_form) > SAME and min(of_step, of_form) == 0), message)


def run_perturbed(ctx: Context, script: Script, weights: Sequence[nn.Parameter]) -> dict[str, Trace]:
    """Run every form with these weights perturbed."""
    with values_restored(weights):
        perturb(weights, ctx.generator)
        return {form: ctx.run(form, script) for form in ctx.forms}


def _difference(ctx: Context, a: Trace, b: Trace) -> float:
    """Return how far two runs differ. If draws repeat, actions count too, because only other weights change them."""
    return float(differences(a.outputs, b.outputs, actions_too=ctx.draws_are_repeatable).max())


@CHECKS(look_at="rebuild")
def weights_load_with_other_slots(ctx: Context, tally: Tally) -> None:
    """Weights saved after acting with N slots load into a policy with more slots, which then starts and acts the same way.

    Cost: A checkpoint loads only with the number of environments it was trained with, or acts differently once loaded.
    Fix: Keep memory out of buffers and parameters, or register it with persistent=False. Everything else that outputs
    depend on, such as a start state that is not zero, has to be a parameter or a buffer.
    """
    module = ctx.require_module()
    other = ctx.subject.rebuild()
    if other.module is None:
        raise UnusableError("rebuild returned a subject without a module: set `module` on it.")
    script = ctx.script(T=2, B=5, initial=True)
    if ACT in ctx.forms:
        ctx.run(ACT, ctx.script(T=2, B=3))
        other.set_memory(other.initial_state(5))
        other.act(script.obs[0], script.first[0], script.first[0], torch.arange(5))
    saved = {name: x.clone() for name, x in module.state_dict().items()}
    try:
        other.module.load_state_dict(saved)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()[:160]
        tally.expect(STEP, False, f"weights saved with 3 slots do not load with 5: {reason}")
        return
    loaded = Probe(other, ctx.seed)
    size = ctx.state_difference(ctx.subject.initial_state(5), other.initial_state(5))
    tally.expect_unchanged(
        STEP, size, f"after loading, the initial state is {size:.2g} away from that of the saved policy"
    )
    for shown, when in ((script, ""), (ctx.script(T=2, B=5, resets={1: [0], 3: [1]}), " with resets")):
        size = float(differences(ctx.run(STEP, shown).outputs, loaded.run(STEP, shown).outputs).max())
        message = f"after loading, outputs{when} are {size:.2g} away from those of the saved policy"
        tally.expect_unchanged(STEP, size, message)
