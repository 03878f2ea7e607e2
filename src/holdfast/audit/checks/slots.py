"""Checks that slots are separate: the output of a slot does not depend on other slots or on the rest of the batch."""

from __future__ import annotations

from dataclasses import replace

from holdfast.audit.compare import differences, stack_steps
from holdfast.audit.context import Context
from holdfast.audit.findings import Register, Tally
from holdfast.audit.probe import seed_draws
from holdfast.audit.script import ACT, MANY, STATE, Script
from holdfast.audit.subject import NotOfferedError

CHECKS = Register()


@CHECKS(quick=True, root=1)
def slots_are_independent(ctx: Context, tally: Tally) -> None:
    """No output depends on the observations or the state of another slot.

    Cost: Agents act on what other agents see. Outputs change with the batch, so one environment gives other results.
    Fix: Look for statistics over the batch axis (mean, max, BatchNorm) and for reshapes that mix slots.
    """
    for form in ctx.forms:
        ctx.expect_no_influence(tally, form, ~ctx.changes(form).same_slot)


@CHECKS(look_at="sequence")
def slot_gradients_are_independent(ctx: Context, tally: Tally) -> None:
    """No output has a gradient with respect to the observations or the state of another slot.

    Cost: Weights get gradients that belong to other slots.
    Fix: Look for batch means that cancel in the forward pass only, and for reshapes that mix slots.
    """
    for form in ctx.forms_with_gradients():
        ctx.expect_no_gradient(tally, form, ~ctx.gradients(form).same_slot)


@CHECKS()
def batch_independent(ctx: Context, tally: Tally) -> None:
    """A slot's outputs are the same alone, in any batch and in any order.

    Cost: Results change with the number of environments, and evaluation differs from training.
    Fix: Look for code that depends on the batch size or on the position in the batch. Return sampled actions as
    `actions` and their log-probs as `log_prob`.
    """
    for form in ctx.pure_forms:
        script = ctx.script(B=MANY, resets={1: [2], 3: [0, 4], MANY - 1: [3]})
        usual = ctx.run(form, script)
        for chosen in ([2], [3, 1], [3, 2, 1, 0], [*range(4, MANY)], [MANY - 1, 8, 5]):
            start = ctx.select_slots(script.start, chosen)
            some = Script(script.obs[:, chosen], script.first[:, chosen], start)
            actions = None if usual.actions is None else usual.actions[:, chosen]
            outputs = ctx.run(form, some, actions).outputs
            before = {name: y[:, chosen] for name, y in usual.outputs.items()}
            size = ctx.difference_ignoring_draws(before, outputs)
            message = f"a batch of slots {chosen} alone gives outputs {size:.2g} away from those in the full batch"
            tally.expect_unchanged(form, size, message)


@CHECKS(needs=(STATE,), look_at="sequence", excused_by=("zero_start_states", "memoryless"))
def layers_are_not_mixed(ctx: Context, tally: Tally) -> None:
    """In each layer, the start state of a slot changes the outputs of that slot and of no other.

    Cost: Slots get the state of other slots in some layers, so agents act on the memory of others.
    Fix: Bring the state to [layers, slots, hidden] with transpose, not with reshape or view. If axis 0 is not layers,
    set layered = False on the subject.
    """
    leaf = ctx.subject.initial_state(1)[0]
    if not ctx.has_layers(leaf):
        raise NotOfferedError("the state does not have the layout [layers, slots, hidden]")
    if len(leaf) < 2:
        raise NotOfferedError("the state has only one layer")
    for form in ctx.forms:
        script = ctx.script(T=3)
        usual = ctx.run(form, script)
        other = ctx.random_state(script.first.shape[1])
        for layer in range(len(leaf)):
            start = [x.clone() for x in script.start]
            for mine, new in zip(start, other, strict=True):
                if layer < len(mine):
                    mine[layer, 1] = new[layer, 1]
            changed = ctx.run(form, replace(script, start=tuple(start)), usual.actions)
            apart = differences(usual.outputs, changed.outputs)
            size = float(apart[:, [0, 2, 3]].max())
            message = f"layer {layer} of slot 1's state moved outputs of another slot by {size:.2g}"
            tally.expect_unchanged(form, size, message)
            size = float(apart[:, 1].max())
            message = f"layer {layer} of the start state is not used: it moved outputs by {size:.1e}"
            tally.expect_change(form, size, message)


@CHECKS(needs=(ACT,), look_at="act")
def slots_in_any_order(ctx: Context, tally: Tally) -> None:
    """Acting with any subset of slots, in any order, continues from the memory of exactly those slots.

    Cost: When the slots of a batch or their order change, agents continue from the memory of others.
    Fix: Keep one row per slot and look it up by slot id, not by position in the batch.
    """
    calls = [[*range(MANY)], [2, 0], [3, 1, 0], [1, 2, 3], [3], [MANY - 1, 7], [1]]
    _expect_own_memory(ctx, tally, calls, resets={0: [1], 3: [2, 4], MANY - 1: [5]})


@CHECKS(needs=(ACT,), look_at="act")
def slots_in_other_batches(ctx: Context, tally: Tally) -> None:
    """Slots that acted in one batch continue from their own memory when they are batched differently.

    Cost: As soon as slots are batched differently, agents lose their memory or get that of others.
    Fix: Keep one row per slot and look it up by slot id, not by the first slot of the batch.
    """
    _expect_own_memory(ctx, tally, [[0, 1, 2, 3], [0, 1], [2, 3], [1, 2], [0, 1, 2, 3]], resets={1: [3], 3: [2]})


def _expect_own_memory(ctx: Context, tally: Tally, calls: list[list[int]], resets: dict[int, list[int]]) -> None:
    """Act once with each list of slots, and expect what `step` gives from the states of those slots.

    Resets are in slots whose id is not their position in the batch, so that mixing up the two shows.
    """
    script = ctx.script(T=len(calls), B=len(calls[0]), resets=resets)
    ctx.subject.set_memory(script.copy().start)
    state = script.start
    for t, chosen in enumerate(calls):
        seed_draws(t)
        acted = ctx.subject.act(*script.act_inputs(t, chosen))
        seed_draws(t)
        rows = ctx.select_slots(state, chosen)
        outputs, after = ctx.subject.step(script.obs[t, chosen], rows, script.first[t, chosen])
        size = float(differences(stack_steps([acted]), stack_steps([outputs])).max())
        message = f"slots {chosen} did not continue from their own memory: outputs differ by {size:.2g}"
        tally.expect_unchanged(ACT, size, message)
        for row, b in enumerate(chosen):
            state = ctx.with_slot(state, b, after, row)
