"""Slots are separate: no slot's output depends on another, or on who else is in the batch."""

from __future__ import annotations

from dataclasses import replace

import torch

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences, stacked
from holdfast.audit.examination import Examination
from holdfast.audit.findings import Tally
from holdfast.audit.probe import seed_draws
from holdfast.audit.script import ACTING, MANY, arriving
from holdfast.audit.subject import ACTIONS, NotOfferedError

CHECKS = Register()


@CHECKS(
    cost="Agents act on what others see. It trains, does worse with every change of batch, and cannot be deployed alone.",
    mend="Look for statistics over the batch axis (mean, max, BatchNorm) and for reshapes that mix slots.",
    quick=True,
    root=1,
)
def slots_are_apart(e: Examination, tally: Tally) -> None:
    """No output answers to another slot's observations or state."""
    for form in e.probe.forms:
        e.nothing_moves(tally, form, ~e.changes(form).same_slot)


@CHECKS(
    cost="Weights learn from credit that belongs to other slots.",
    mend="Look for batch means that are detached in the forward pass only, and for reshapes that mix slots.",
    look_at="sequence",
)
def slots_are_apart_in_gradients(e: Examination, tally: Tally) -> None:
    """No output has a gradient by another slot's state or observations."""
    for form in e.forms_with_gradients():
        e.no_gradient(tally, form, ~e.gradients(form).same_slot)


@CHECKS(
    cost="Results change with the number of environments, and evaluation differs from training.",
    mend="Look for anything that depends on the position in the batch, or on its size. What is drawn has to be put out as "
    "`actions`, and its log-prob as `log_prob`.",
)
def any_company(e: Examination, tally: Tally) -> None:
    """A slot's outputs are the same alone, in other company and in any order."""
    with torch.no_grad():
        for form in e.probe.pure_forms:
            script = e.probe.script(B=MANY, ends={1: [2], 3: [0, 4], MANY - 1: [3]})
            usual = e.probe.run(form, script)
            actions = usual.outputs.get(ACTIONS)
            for chosen in ([2], [3, 1], [3, 2, 1, 0], [*range(4, MANY)], [MANY - 1, 8, 5]):
                some = replace(
                    script,
                    obs=script.obs[:, chosen],
                    first=script.first[:, chosen],
                    start=e.probe.rows(script.start, chosen),
                )
                outputs = e.probe.run(form, some, None if actions is None else actions[:, chosen]).outputs
                before = {name: y[:, chosen] for name, y in usual.outputs.items()}
                size = e.apart_whatever_was_drawn(before, outputs)
                tally.still(form, size, f"{form}: slots {chosen} alone, in this order, give outputs {size:.2g} away")


@CHECKS(
    cost="Several layers share or swap their states between slots: memory that belongs to somebody else.",
    mend="State is [layers, slots, hidden]; bring it there with transpose, not with reshape or view. A subject whose "
    "first axis is something else says so: layered = False.",
    look_at="sequence",
    excused_by=("zero_start_states", "memoryless"),
)
def layers_are_in_place(e: Examination, tally: Tally) -> None:
    """Each layer's state belongs to its slot, and is used."""
    e.has_state()
    blank = e.subject.initial_state(1)
    if not e.has_layers(blank[0]):
        raise NotOfferedError("its state is not [layers, slots, hidden], so layers cannot be told apart")
    if len(blank[0]) < 2:
        raise NotOfferedError("it has one layer")
    with torch.no_grad():
        for form in e.probe.forms:
            script = e.probe.script(T=3)
            usual = e.probe.run(form, script)
            other = e.probe.any_state(script.first.shape[1])
            for layer in range(len(blank[0])):
                start = []
                for leaf, new in zip(script.start, other, strict=True):
                    leaf = leaf.clone()
                    if layer < len(leaf):
                        leaf[layer, 1] = new[layer, 1]
                    start.append(leaf)
                changed = replace(script, start=tuple(start))
                apart = differences(usual.outputs, e.probe.run(form, changed, usual.outputs.get(ACTIONS)).outputs)
                size = float(apart[:, [0, 2, 3]].max())
                tally.still(form, size, f"{form}: layer {layer} of slot 1's state moved another slot by {size:.2g}")
                size = float(apart[:, 1].max())
                said = f"{form}: layer {layer} of the start state is not used: the output moved by {size:.1e}"
                tally.moves(form, size, said)


@CHECKS(
    cost="With another batch of slots a policy continues somebody else's memory.",
    mend="Keep one row per slot and find it by the slot's number; not by position in the batch.",
    look_at="act",
)
def slots_in_any_order(e: Examination, tally: Tally) -> None:
    """Acting with some slots, in any order, continues the memory of exactly those."""
    calls = [[*range(MANY)], [2, 0], [3, 1, 0], [1, 2, 3], [3], [MANY - 1, 7], [1]]
    _continued(e, tally, calls, ends={0: [1], 3: [2, 4], MANY - 1: [5]})


@CHECKS(
    cost="A state table keyed by where a batch starts breaks as soon as batches are cut elsewhere.",
    mend="Keep one row per slot and find it by the slot's number; not by the first slot of the batch.",
    look_at="act",
)
def slots_in_other_slices(e: Examination, tally: Tally) -> None:
    """Slots acted on in one batch may come back in batches that are cut elsewhere."""
    _continued(e, tally, [[0, 1, 2, 3], [0, 1], [2, 3], [1, 2], [0, 1, 2, 3]], ends={1: [3], 3: [2]})


def _continued(e: Examination, tally: Tally, calls: list[list[int]], ends: dict[int, list[int]]) -> None:
    """Act with these slots call by call; each slot has to give what it gives alone, step by step.

    Episodes end where a slot's number is not its position in the batch, so that the flags cannot be taken for either.
    """
    e.probe.needs(ACTING)
    with torch.no_grad():
        script = e.probe.script(T=len(calls), B=len(calls[0]), ends=ends)
        e.subject.set_memory(script.copy().start)
        state = script.start
        for t, chosen in enumerate(calls):
            seed_draws(t)
            acted = e.subject.act(*arriving(script, t, chosen))
            seed_draws(t)
            outputs, after = e.subject.step(script.obs[t, chosen], e.probe.rows(state, chosen), script.first[t, chosen])
            size = float(differences(stacked([acted]), stacked([outputs])).max())
            tally.still(ACTING, size, f"acting: slots {chosen} did not continue their own memory: {size:.2g} away")
            for row, b in enumerate(chosen):
                state = e.probe.placed(state, b, after, row)
