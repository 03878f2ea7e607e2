"""Memory that the policy keeps itself is detached, bounded, one row per slot, and read and written as copies."""

from __future__ import annotations

import torch

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences, state_differences
from holdfast.audit.context import Context
from holdfast.audit.findings import Tally
from holdfast.audit.retained import retained_size, retained_tensors
from holdfast.audit.script import ACT, STEP, act_inputs
from holdfast.audit.subject import Outputs, State, copy_state

CHECKS = Register()


def _require_memory(ctx: Context) -> None:
    ctx.require_state()
    ctx.probe.require(ACT)


def _act(ctx: Context, steps: int, B: int = 3, fresh: bool = True) -> list[Outputs]:
    """Act a few steps, from a random memory or (not fresh) from the current one. Return the outputs of each step."""
    script = ctx.probe.script(T=steps, B=B)
    if fresh:
        ctx.subject.set_memory(script.start)
    return [ctx.subject.act(*act_inputs(script, t)) for t in range(steps)]


def _difference(ctx: Context, a: State, b: State) -> float:
    return float(state_differences(a, b, ctx.subject.slot_axis).max())


@CHECKS(
    cost="Memory keeps the graph of every step since the start: each backward is slower, until memory runs out.",
    fix="Store state.detach().",
    look_at="act",
    quick=True,
)
def memory_is_detached(ctx: Context, tally: Tally) -> None:
    """Memory has no graph, even if acting records gradients."""
    _require_memory(ctx)
    with torch.enable_grad():
        _act(ctx, 3)
    with_graph = [name for name, x in retained_tensors(ctx.subject) if x.grad_fn is not None]
    tally.expect(ACT, not with_graph, f"{', '.join(with_graph[:3])} keeps a graph between calls")


@CHECKS(
    cost="Backward goes through all steps since the start: slower with every step, and wrong.",
    fix="Store state.detach(), or act under torch.no_grad().",
    look_at="act",
)
def graph_does_not_grow(ctx: Context, tally: Tally) -> None:
    """The graph of an output is no larger after many steps than after few."""
    _require_memory(ctx)
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


@CHECKS(
    cost="Process memory grows with every step, until the run dies.",
    fix="Keep only the newest state of each slot; look for lists and dicts that are only ever appended to.",
    look_at="act",
)
def memory_is_bounded(ctx: Context, tally: Tally) -> None:
    """What the policy retains does not grow with the number of calls."""
    for call in ctx.probe.calls:
        sizes = []
        for steps in (4, 8, 8):
            if call == ACT:
                _act(ctx, steps, fresh=False)
            else:
                ctx.probe.run(call, ctx.probe.script(T=steps, B=3))
            sizes.append(retained_size(ctx.subject))
        message = f"retained data grew from {sizes[1]:,} to {sizes[2]:,} in 8 steps (bytes plus entries of containers)"
        tally.expect(call, sizes[2] <= sizes[1], message)


@CHECKS(
    cost="A saved memory is not the one that is restored: evaluation or a resumed run starts wrong.",
    fix="get_memory and set_memory have to carry every tensor of the state, for every slot.",
    look_at="set_memory",
)
def memory_round_trips(ctx: Context, tally: Tally) -> None:
    """set_memory of what get_memory returned gives the same outputs again."""
    _require_memory(ctx)
    _act(ctx, 3)
    kept = copy_state(ctx.subject.get_memory())
    script = ctx.probe.script(T=3, B=3)
    before = ctx.probe.continue_acting(script)
    _act(ctx, 2, fresh=False)
    ctx.subject.set_memory(copy_state(kept))
    size = float(differences(before.outputs, ctx.probe.continue_acting(script).outputs).max())
    tally.expect_unchanged(ACT, size, f"after get_memory and set_memory, outputs are {size:.2g} away")


@CHECKS(
    cost="A snapshot changes after it was taken, so wrong start states are stored for learning.",
    fix="Return clones.",
    look_at="get_memory",
)
def get_memory_returns_a_copy(ctx: Context, tally: Tally) -> None:
    """Acting does not change what get_memory returned, and writing into that does not change the memory."""
    _require_memory(ctx)
    _act(ctx, 3)
    given = ctx.subject.get_memory()
    kept = copy_state(given)
    _act(ctx, 2, fresh=False)
    size = _difference(ctx, given, kept)
    tally.expect_unchanged(ACT, size, f"acting changed what get_memory had returned by {size:.2g}")
    before = copy_state(ctx.subject.get_memory())
    for leaf in ctx.subject.get_memory():
        leaf.fill_(7.0)
    tally.expect_unchanged(ACT, *ctx.memory_change(before, "writing into what get_memory returned"))


@CHECKS(
    cost="Acting overwrites a stored memory that was to be restored later.",
    fix="Copy what set_memory is given.",
    look_at="set_memory",
    root=2,
)
def set_memory_takes_a_copy(ctx: Context, tally: Tally) -> None:
    """Acting does not change the tensors given to set_memory, and writing into those does not change the memory."""
    _require_memory(ctx)
    given = ctx.probe.random_state(3)
    kept = copy_state(given)
    ctx.subject.set_memory(given)
    _act(ctx, 2, fresh=False)
    size = _difference(ctx, given, kept)
    tally.expect_unchanged(ACT, size, f"acting changed the tensors given to set_memory by {size:.2g}")
    ctx.subject.set_memory(given)
    before = copy_state(ctx.subject.get_memory())
    for leaf in given:
        leaf.fill_(7.0)
    tally.expect_unchanged(ACT, *ctx.memory_change(before, "writing into what set_memory was given"))


@CHECKS(
    cost="Evaluation begins with old memory, so no two evaluations agree.",
    fix="reset_memory has to clear every tensor of the state, for every slot.",
    look_at="reset_memory",
)
def reset_memory_clears_everything(ctx: Context, tally: Tally) -> None:
    """After reset_memory, acting continues from the initial state."""
    _require_memory(ctx)
    script = ctx.probe.script(T=3, B=3, initial=True)
    clean = ctx.probe.run(STEP, script)
    _act(ctx, 3)
    ctx.subject.reset_memory()
    size = float(differences(clean.outputs, ctx.probe.continue_acting(script).outputs).max())
    tally.expect_unchanged(
        ACT, size, f"after reset_memory, outputs are {size:.2g} away from those of the initial state"
    )


@CHECKS(
    cost="Resetting one environment resets others too, or resets a copy and so nothing.",
    fix="Write zeros into the rows of these slots: memory[:, slots] = 0, not memory[:, slots].zero_().",
    look_at="reset_slots",
)
def reset_slots_clears_only_those(ctx: Context, tally: Tally) -> None:
    """reset_slots (reset_env_memory) clears the memory of the given slots, and of no others."""
    _require_memory(ctx)
    for cleared, others in (([2], [0, 1, 3]), ([3, 0], [1, 2])):
        _act(ctx, 2, B=4)
        kept = copy_state(ctx.subject.get_memory())
        ctx.subject.reset_slots(torch.tensor(cleared))
        now = ctx.subject.get_memory()
        size = float(state_differences(kept, now, ctx.subject.slot_axis)[:, others].max())
        tally.expect_unchanged(ACT, size, f"resetting slots {cleared} changed the memory of others by {size:.2g}")
        initial = ctx.probe.select_slots(ctx.subject.initial_state(4), cleared)
        left = _difference(ctx, initial, ctx.probe.select_slots(now, cleared))
        tally.expect_unchanged(ACT, left, f"after resetting slots {cleared}, {left:.2g} of their memory is left")
