"""Memory that a policy keeps itself: without a graph, bounded, a row per slot, read and written as copies."""

from __future__ import annotations

import torch

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences, state_differences
from holdfast.audit.examination import Examination
from holdfast.audit.findings import Tally
from holdfast.audit.holdings import kept_size, kept_tensors
from holdfast.audit.script import ACTING, STEPPING, arriving
from holdfast.audit.subject import Outputs, copied

CHECKS = Register()


def _act(e: Examination, steps: int, B: int = 3, fresh: bool = True) -> list[Outputs]:
    """Acting a few steps from any memory; what each put out."""
    script = e.probe.script(T=steps, B=B)
    if fresh:
        e.subject.set_memory(script.start)
    return [e.subject.act(*arriving(script, t)) for t in range(steps)]


@CHECKS(
    cost="Memory holds on to the graph of every step since the start: each backward is slower, until memory runs out.",
    mend="Store state.detach().",
    look_at="act",
    quick=True,
)
def memory_has_no_graph(e: Examination, tally: Tally) -> None:
    """What is kept between calls has no graph, even when acting records gradients."""
    e.has_state()
    e.probe.needs(ACTING)
    with torch.enable_grad():
        _act(e, 3)
    kept = kept_tensors(e.subject)
    grown = [name for name, x in kept if x.grad_fn is not None]
    tally.holds(ACTING, not grown, f"acting: {', '.join(grown[:3])} keeps a graph between calls")


@CHECKS(
    cost="Backward reaches back through all steps since the start: slower with every step, and wrong.",
    mend="Store state.detach(), or act under torch.no_grad().",
    look_at="act",
)
def graphs_do_not_grow(e: Examination, tally: Tally) -> None:
    """The graph behind an output is no larger after many steps than after few."""
    e.has_state()
    e.probe.needs(ACTING)
    with torch.enable_grad():
        sizes = [_graph_size(step) for step in _act(e, 12)]
    few, many = max(sizes[1:3]), max(sizes[-2:])
    tally.holds(
        ACTING, many <= few + 2, f"acting: the graph behind an output grew from {few} to {many} nodes in 9 steps"
    )


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
    cost="Resident memory grows with every step, until the run dies.",
    mend="Keep the newest state of each slot and nothing else; look for lists and dicts that are only ever added to.",
    look_at="act",
)
def memory_is_bounded(e: Examination, tally: Tally) -> None:
    """What a policy keeps does not grow with the number of steps, acting or learning."""
    with torch.no_grad():
        for call in e.probe.calls:
            sizes = []
            for steps in (4, 8, 8):
                if call == ACTING:  # on and on
                    _act(e, steps, fresh=False)
                else:
                    e.probe.run(call, e.probe.script(T=steps, B=3))
                sizes.append(kept_size(e.subject))
            said = f"what is kept grew from {sizes[1]:,} to {sizes[2]:,} (bytes, and entries of lists) in 8 steps"
            tally.holds(call, sizes[2] <= sizes[1], f"{call}: {said}")


@CHECKS(
    cost="Memory that was saved is not the memory that comes back: evaluation or a resumed run starts wrong.",
    mend="get_memory and set_memory have to carry every tensor of the state, for every slot.",
    look_at="set_memory",
)
def memory_comes_back(e: Examination, tally: Tally) -> None:
    """Setting a memory that was got gives the same outputs again."""
    e.has_state()
    e.probe.needs(ACTING)
    with torch.no_grad():
        _act(e, 3)
        kept = copied(e.subject.get_memory())
        script = e.probe.script(T=3, B=3)
        first = e.probe.run_on(script)
        _act(e, 2, fresh=False)
        e.subject.set_memory(copied(kept))
        again = e.probe.run_on(script)
        size = float(differences(first.outputs, again.outputs).max())
        tally.still(ACTING, size, f"acting: after get_memory and set_memory outputs are {size:.2g} away")


@CHECKS(
    cost="A snapshot changes while it is held, so the wrong start states are stored for learning.",
    mend="Hand out clones.",
    look_at="get_memory",
)
def memory_is_handed_out_as_a_copy(e: Examination, tally: Tally) -> None:
    """What get_memory gave does not change when acting goes on, and changing it changes nothing."""
    e.has_state()
    e.probe.needs(ACTING)
    with torch.no_grad():
        _act(e, 3)
        given = e.subject.get_memory()
        kept = copied(given)
        _act(e, 2, fresh=False)
        size = float(state_differences(given, kept, e.subject.slot_axis).max())
        tally.still(ACTING, size, f"acting on moved a memory that had been handed out by {size:.2g}")
        before = copied(e.subject.get_memory())
        for leaf in e.subject.get_memory():
            leaf.fill_(7.0)
        tally.still(ACTING, *e.moved_memory(before, "writing into what get_memory gave"))


@CHECKS(
    cost="A stored memory is overwritten by acting: what was to be restored later is gone.",
    mend="Copy what set_memory is given.",
    look_at="set_memory",
    root=2,
)
def memory_is_taken_over_as_a_copy(e: Examination, tally: Tally) -> None:
    """What set_memory was given is not changed by acting, and changing it changes nothing."""
    e.has_state()
    e.probe.needs(ACTING)
    with torch.no_grad():
        given = e.probe.any_state(3)
        kept = copied(given)
        e.subject.set_memory(given)
        _act(e, 2, fresh=False)
        size = float(state_differences(given, kept, e.subject.slot_axis).max())
        tally.still(ACTING, size, f"acting moved the tensors that set_memory was given by {size:.2g}")
        e.subject.set_memory(given)
        before = copied(e.subject.get_memory())
        for leaf in given:
            leaf.fill_(7.0)
        tally.still(ACTING, *e.moved_memory(before, "writing into what set_memory was given"))


@CHECKS(
    cost="Evaluation begins with the memory of what came before it: no two evaluations agree.",
    mend="reset_memory has to clear every tensor of the state, for every slot.",
    look_at="reset_memory",
)
def a_reset_memory_is_blank(e: Examination, tally: Tally) -> None:
    """After reset_memory, acting without flags is acting from the blank state."""
    e.has_state()
    e.probe.needs(ACTING)
    with torch.no_grad():
        script = e.probe.script(T=3, B=3, blank=True)
        clean = e.probe.run(STEPPING, script)
        _act(e, 3)
        e.subject.reset_memory()
        after = e.probe.run_on(script)
        size = float(differences(clean.outputs, after.outputs).max())
        tally.still(ACTING, size, f"acting: after reset_memory outputs are {size:.2g} away from those of a blank state")


@CHECKS(
    cost="Clearing one environment clears others, or a copy and so nothing.",
    mend="Write zeros into the rows of these slots: memory[:, slots] = 0, not memory[:, slots].zero_().",
    look_at="reset_slots",
)
def single_slots_are_cleared(e: Examination, tally: Tally) -> None:
    """Clearing single slots (reset_slots, reset_env_memory) clears those that are named, and no others."""
    e.has_state()
    e.probe.needs(ACTING)
    with torch.no_grad():
        for cleared, others in (([2], [0, 1, 3]), ([3, 0], [1, 2])):
            _act(e, 2, B=4)
            kept = copied(e.subject.get_memory())
            e.subject.reset_slots(torch.tensor(cleared))
            now = e.subject.get_memory()
            size = float(state_differences(kept, now, e.subject.slot_axis)[:, others].max())
            tally.still(ACTING, size, f"clearing slots {cleared} moved the memory of others by {size:.2g}")
            blank = e.probe.rows(e.subject.initial_state(4), cleared)
            left = float(state_differences(blank, e.probe.rows(now, cleared), e.subject.slot_axis).max())
            tally.still(ACTING, left, f"clearing slots {cleared} left {left:.2g} of their memory")
