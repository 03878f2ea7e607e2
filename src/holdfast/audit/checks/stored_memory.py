"""Checks of the memory that a policy keeps itself: detached, bounded, a row per slot, read and written as copies.

Bootstrap values must not change this memory, and must equal the values of acting.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import torch

from holdfast.audit.compare import differences, stack_steps, state_differences
from holdfast.audit.context import Context
from holdfast.audit.findings import Register, Tally
from holdfast.audit.retained import retained_sizes, retained_tensors
from holdfast.audit.script import ACT, STATE, STEP, VALUE, VALUE_FROM_MEMORY, Script
from holdfast.audit.subject import NotOfferedError, Outputs, copy_state
from holdfast.errors import name_some

CHECKS = Register()


def _act(ctx: Context, steps: int | Script, B: int = 3, fresh: bool = True) -> list[Outputs]:
    """Act for some steps, from a random memory if `fresh`, else from the current one. Return the outputs by step."""
    script = ctx.script(T=steps, B=B) if isinstance(steps, int) else steps
    if fresh:
        ctx.subject.set_memory(script.start)
    return [ctx.subject.act(*script.act_inputs(t)) for t in range(len(script.obs))]


@CHECKS(needs=(STATE, ACT), look_at="act", quick=True)
def memory_is_detached(ctx: Context, tally: Tally) -> None:
    """The stored memory is detached from the autograd graph, even if acting records gradients.

    Cost: The stored memory keeps the graph of every step since the start: backward gets slower, until RAM runs out.
    Fix: Store state.detach().
    """
    with torch.enable_grad():
        _act(ctx, 3)
    with_graph = [name for name, x in retained_tensors(ctx.subject) if x.grad_fn is not None]
    tally.expect(ACT, not with_graph, f"{name_some(with_graph)} keeps an autograd graph between calls")


@CHECKS(needs=(STATE, ACT), look_at="act")
def graph_does_not_grow(ctx: Context, tally: Tally) -> None:
    """The autograd graph of an output is no larger after many steps than after few.

    Cost: Backward goes through all steps since the start: it gets slower with every step, and its gradients are wrong.
    Fix: Store state.detach(), or act under torch.no_grad().
    """
    with torch.enable_grad():
        sizes = [_graph_size(step) for step in _act(ctx, 12)]
    few, many = max(sizes[1:3]), max(sizes[-2:])
    tally.expect(ACT, many <= few + 2, f"the graph of an output grew from {few} to {many} nodes in 9 steps")


def _graph_size(outputs: Outputs) -> int:
    waiting = [y.grad_fn for y in outputs.values() if y.grad_fn is not None]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return len(seen)


@CHECKS(look_at="act")
def memory_is_bounded(ctx: Context, tally: Tally) -> None:
    """The data that a policy keeps does not grow with the number of calls.

    Cost: The process uses more RAM with every step, until it is killed.
    Fix: Keep only the newest state of each slot; look for lists and dicts that are only ever appended to.
    """
    for call, ends in product(ctx.calls, ((), (1, 3))):
        sizes = []
        for steps in (4, 8, 8):
            script = ctx.script(T=steps, B=3, resets={b: [*ends] for b in range(3)})
            _act(ctx, script, fresh=False) if call == ACT else ctx.run(call, script)
            sizes.append(retained_sizes(ctx.subject))
        grown = [name for name, size in sizes[2].items() if size > sizes[1][name]]
        before, after = (sum(size[name] for name in grown) for size in sizes[1:])
        during = "8 steps with 6 episode ends" if ends else "8 steps"
        message = f"{name_some(grown)} grew from {before:,} to {after:,} in {during} (bytes plus container entries)"
        tally.expect(call, sizes[2].total() <= sizes[1].total(), message)


@CHECKS(needs=(STATE, ACT), look_at="set_memory")
def memory_round_trips(ctx: Context, tally: Tally) -> None:
    """If set_memory gets back what get_memory returned, acting repeats its outputs.

    Cost: The restored memory is not the one that was saved, so evaluation or a resumed run starts from a wrong memory.
    Fix: get_memory and set_memory have to carry every tensor of the state, for every slot.
    """
    _act(ctx, 3)
    kept = copy_state(ctx.subject.get_memory())
    script = ctx.script(T=3, B=3)
    before = ctx.continue_acting(script)
    _act(ctx, 2, fresh=False)
    ctx.subject.set_memory(copy_state(kept))
    size = float(differences(before.outputs, ctx.continue_acting(script).outputs).max())
    tally.expect_unchanged(ACT, size, f"after get_memory and set_memory, outputs differ by {size:.2g}")


@CHECKS(needs=(STATE, ACT), look_at="get_memory")
def get_memory_returns_a_copy(ctx: Context, tally: Tally) -> None:
    """Acting does not change what get_memory returned, and writing into the returned tensors does not change memory.

    Cost: A snapshot changes after it was taken, so wrong start states are stored for learning.
    Fix: Return clones.
    """
    _act(ctx, 3)
    given = ctx.subject.get_memory()
    kept = copy_state(given)
    _act(ctx, 2, fresh=False)
    size = ctx.state_difference(given, kept)
    tally.expect_unchanged(ACT, size, f"acting changed what get_memory had returned by {size:.2g}")
    before = copy_state(ctx.subject.get_memory())
    for leaf in ctx.subject.get_memory():
        leaf.fill_(7.0)
    tally.expect_unchanged(ACT, *ctx.memory_change(before, "writing into what get_memory returned"))


@CHECKS(needs=(STATE, ACT), look_at="set_memory", root=2)
def set_memory_takes_a_copy(ctx: Context, tally: Tally) -> None:
    """Acting does not change the tensors given to set_memory, and writing into them does not change memory.

    Cost: Acting overwrites a stored memory that was to be restored later.
    Fix: Clone the tensors that set_memory is given.
    """
    given = ctx.random_state(3)
    kept = copy_state(given)
    ctx.subject.set_memory(given)
    _act(ctx, 2, fresh=False)
    size = ctx.state_difference(given, kept)
    tally.expect_unchanged(ACT, size, f"acting changed the tensors given to set_memory by {size:.2g}")
    ctx.subject.set_memory(given)
    before = copy_state(ctx.subject.get_memory())
    for leaf in given:
        leaf.fill_(7.0)
    tally.expect_unchanged(ACT, *ctx.memory_change(before, "writing into what set_memory was given"))


@CHECKS(needs=(STATE, ACT), look_at="reset_memory")
def reset_memory_clears_everything(ctx: Context, tally: Tally) -> None:
    """After reset_memory, acting continues from the initial state.

    Cost: Evaluation begins with old memory, so no two evaluations agree.
    Fix: reset_memory has to clear every tensor of the state, for every slot.
    """
    script = ctx.script(T=3, B=3, initial=True)
    clean = ctx.run(STEP, script)
    _act(ctx, 3)
    ctx.subject.reset_memory()
    size = float(differences(clean.outputs, ctx.continue_acting(script).outputs).max())
    message = f"after reset_memory, outputs are {size:.2g} away from those of the initial state"
    tally.expect_unchanged(ACT, size, message)


@CHECKS(needs=(STATE, ACT), look_at="reset_slots")
def reset_slots_clears_only_those(ctx: Context, tally: Tally) -> None:
    """reset_slots (reset_env_memory) clears the memory of the given slots, and of no others.

    Cost: Resetting one environment also resets others, or clears only a copy and so has no effect.
    Fix: Write zeros into the rows of these slots: memory[:, slots] = 0, not memory[:, slots].zero_().
    """
    for cleared, others in (([2], [0, 1, 3]), ([3, 0], [1, 2])):
        _act(ctx, 2, B=4)
        kept = copy_state(ctx.subject.get_memory())
        ctx.subject.reset_slots(torch.tensor(cleared))
        now = ctx.subject.get_memory()
        size = float(state_differences(kept, now, ctx.subject.slot_axis)[:, others].max())
        tally.expect_unchanged(ACT, size, f"resetting slots {cleared} changed the memory of others by {size:.2g}")
        initial = ctx.select_slots(ctx.subject.initial_state(4), cleared)
        left = ctx.state_difference(initial, ctx.select_slots(now, cleared))
        tally.expect_unchanged(ACT, left, f"after a reset, slots {cleared} are {left:.2g} away from the initial state")


@CHECKS(needs=(STATE, ACT), look_at="value_from_memory", quick=True)
def value_call_does_not_write_memory(ctx: Context, tally: Tally) -> None:
    """Computing a bootstrap value does not change the policy's memory.

    Cost: Each bootstrap advances or clears the memory that acting continues from (rsl_rl had this bug).
    Fix: Compute values from a copy of the state, and do not store the new state.
    """
    ctx.run(ACT, ctx.script(T=3, B=3))
    for resets in ({}, {1: [0]}):
        kept = copy_state(ctx.subject.get_memory())
        ctx.subject.value_from_memory(*ctx.script(T=1, B=3, resets=resets).act_inputs(0))
        tally.expect_unchanged(VALUE_FROM_MEMORY, *ctx.memory_change(kept, "computing a value"))


@CHECKS(look_at="value_from_memory", quick=True)
def value_call_equals_acting(ctx: Context, tally: Tally) -> None:
    """A bootstrap value equals the value that acting returns for the same observation.

    Cost: Advantages bootstrap from a value that is not the learned one, so they are wrong at the end of a rollout.
    Fix: Compute bootstrap values with the code, the memory and the flags that acting uses.
    """
    for resets in ({}, {2: [0]}):
        script = ctx.script(T=1, B=3, resets=resets)
        for call, pair in ((VALUE, _value_and_step), (VALUE_FROM_MEMORY, _value_and_act)):
            with suppress(NotOfferedError):
                computed, acted = pair(ctx, script)
                size = float(differences(stack_steps([computed]), stack_steps([acted]), ("value",)).max())
                at = " at an episode start" if resets else ""
                tally.expect_unchanged(call, size, f"the value{at} is {size:.2g} away from the one that acting returns")
    if not tally.measured:
        raise NotOfferedError("the policy has no method that computes only value estimates, or acting returns none")


def _value_and_step(ctx: Context, script: Script) -> tuple[Outputs, Outputs]:
    obs, first = script.obs[0], script.first[0]
    return ctx.subject.value(obs, script.copy().start, first), ctx.subject.step(obs, script.copy().start, first)[0]


def _value_and_act(ctx: Context, script: Script) -> tuple[Outputs, Outputs]:
    some = [2, 0]  # out of order, so that slot ids are not positions
    ctx.subject.set_memory(script.start)
    return ctx.subject.value_from_memory(*script.act_inputs(0, some)), ctx.subject.act(*script.act_inputs(0, some))
