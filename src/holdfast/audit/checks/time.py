"""Time: step by step and all at once are the same, from the state that was lived, and without a look ahead."""

from __future__ import annotations

from dataclasses import replace

import torch

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences, state_differences
from holdfast.audit.examination import Examination
from holdfast.audit.findings import SAME, Tally
from holdfast.audit.script import ACTING, AWKWARD_ENDS, LONG, SCORING, SEQUENCE, STEPPING, TOO_WILD, Script
from holdfast.audit.subject import ACTIONS, NotOfferedError

CHECKS = Register()
SIZES = ((6, 4), (4, 6), (5, 1))  # steps and slots: sizes that tell T from B
# A few ends far apart, and in eight further slots one at every step of the sequence: chunks lose those at their edges.
LATE_ENDS = {0: [2, 8, 40], 1: [1, 2, 17, 33, LONG - 1]} | {2 + b: [*range(b, LONG, 8)] for b in range(8)}


@CHECKS(
    cost="While learning, outputs depend on what was not there yet when the policy acted: ratios are wrong from the start.",
    mend="Look for (T, B) and (B, T) mixed in a reshape, and for bidirectional layers.",
    look_at="sequence",
)
def the_future_is_not_seen(e: Examination, tally: Tally) -> None:
    """No output answers to a later observation."""
    for form in e.probe.forms:
        found = e.changes(form)
        T, B = found.first.shape
        later = (torch.arange(T + 1) - 1)[:, None] > torch.arange(T)[None, :]
        e.nothing_moves(tally, form, found.same_slot & later[:, None, :, None].expand(T + 1, B, T, B))


@CHECKS(
    cost="Learning judges another policy than the one that acted: ratios are not 1, and clipping hides it.",
    mend="Run the same code for one step and for many. Look for (T, B) mixed up in a reshape.",
    look_at="sequence",
    quick=True,
    root=1,
)
def steps_equal_a_sequence(e: Examination, tally: Tally) -> None:
    """T calls of one step give what one call of T steps gives, within an episode."""
    e.probe.needs(SEQUENCE)
    _compare(e, tally, ends={})


@CHECKS(
    cost="Every segment with an episode end in it is judged by another memory than it was lived with.",
    mend="Reset inside sequences exactly where acting resets.",
    look_at="sequence",
    excused_by=("learning_without_resets",),
    quick=True,
)
def steps_equal_a_sequence_across_ends(e: Examination, tally: Tally) -> None:
    """T calls of one step give what one call of T steps gives, with episode ends among them."""
    e.probe.needs(SEQUENCE)
    _compare(e, tally, ends=AWKWARD_ENDS)


def _compare(e: Examination, tally: Tally, ends: dict[int, list[int]]) -> None:
    with torch.no_grad():
        for steps, slots in SIZES:
            shown = {slot: [t for t in at if t < steps] for slot, at in ends.items() if slot < slots}
            _compare_one(e, tally, e.probe.script(T=steps, B=slots, ends=shown, blank=True), SAME)
        long = e.probe.script(T=LONG, B=len(LATE_ENDS) if ends else 2, ends=LATE_ENDS if ends else {}, blank=True)
        limit = SAME + 10 * e.rounding_grows_to(long)  # a sequence rounds otherwise at every step, a nudge only once
        if limit < TOO_WILD:
            _compare_one(e, tally, long, limit)
        else:
            tally.remark = f"{LONG} steps could not be compared: rounding alone grows to {limit:.1g} in them"


def _compare_one(e: Examination, tally: Tally, script: Script, limit: float) -> None:
    T, B = script.first.shape
    stepped = e.probe.run(STEPPING, script)
    whole = e.probe.run(SEQUENCE, script, stepped.outputs.get(ACTIONS))
    apart = differences(stepped.outputs, whole.outputs)
    size, t, b = float(apart.max()), int(apart.argmax()) // B, int(apart.argmax()) % B
    said = f"{T} steps of {B} slots at once are {size:.2g} away from single steps (slot {b}, step {t})"
    limit += 10 * e.rounding_of_actions(script, stepped.outputs.get(ACTIONS))
    tally.still(SEQUENCE, size, f"{SEQUENCE}: {said}", limit)


@CHECKS(
    cost="Learning judges by other numbers than those that other checks looked at.",
    mend="Let both run the same code, from the same start state, with gradients.",
    look_at="score",
)
def scoring_equals_a_sequence(e: Examination, tally: Tally) -> None:
    """Scoring that is told how episodes ended gives what a sequence gives, and the same gradients."""
    e.probe.needs(SEQUENCE)
    script = e.probe.script(ends=AWKWARD_ENDS)
    actions = e.probe.run(STEPPING, script).outputs.get(ACTIONS)
    whole, gradients = e.probe.run(SEQUENCE, script, actions).outputs, e.gradients_by_start(SEQUENCE, script, actions)
    most = max((float(leaf.abs().max()) for leaf in gradients), default=0.0)
    for ended_by in ("terminated", "truncated"):
        scored = replace(script, ended_by=ended_by)
        size = float(differences(whole, e.probe.run(SCORING, scored, actions).outputs).max())
        said = f"{SCORING}: with episodes that were {ended_by}, outputs are {size:.2g} away from those of a sequence"
        tally.still(SCORING, size, said)
        if most:
            others = e.gradients_by_start(SCORING, scored, actions)
            size = max(float((x - y).abs().max()) for x, y in zip(gradients, others, strict=True)) / most
            said = (
                f"{SCORING}: gradients by the start state are {size:.2g} of the largest away from those of a sequence"
            )
            tally.still(SCORING, size, said, limit=1e-3)  # sums over many steps, rounded in another order


@CHECKS(
    cost="What follows a sequence starts from a wrong memory: burn-in, refreshed states and evaluation drift away.",
    mend="Hand back the state after the last step of every slot, whatever was padded, packed or blanked.",
    look_at="sequence",
)
def the_final_state_is_right(e: Examination, tally: Tally) -> None:
    """The state after a sequence is the state after as many steps."""
    e.has_state()
    e.probe.needs(SEQUENCE)
    with torch.no_grad():
        for ends in ({}, {1: [3], 2: [0, 5], 3: [5]}) if e.learning_resets else ({},):
            script = e.probe.script(ends=ends, blank=True)
            stepped = e.probe.run(STEPPING, script)
            whole = e.probe.run(SEQUENCE, script, stepped.outputs.get(ACTIONS))
            if not whole.final:
                raise NotOfferedError("its form for sequences hands back no state")
            apart = state_differences(stepped.final, whole.final, e.subject.slot_axis)
            size = float(apart.max())
            said = f"{SEQUENCE}: the state handed back is {size:.2g} away from the one after single steps"
            tally.still(SEQUENCE, size, said, limit=10 * SAME)


@CHECKS(
    cost="Segments are learned from another memory than they were lived with: of a step too late or too early, or out of place.",
    mend="Record the state before a step as the start of the segment that begins with it, and hand every tensor of it to "
    "learning in its place.",
    look_at="sequence",
    excused_by=("zero_start_states",),
    quick=True,
)
def the_start_state_is_the_right_one(e: Examination, tally: Tally) -> None:
    """Learning from the memory recorded before a segment gives what acting gave on it."""
    e.has_state()
    e.probe.needs(SEQUENCE)
    with torch.no_grad():
        for steps, slots in ((4, 4), (1, 3), (2, 5), (3, 3)):
            before = e.probe.script(T=3, B=slots)
            after = e.probe.script(T=steps, B=slots, ends={1: [2]} if steps > 2 else {})
            if ACTING in e.probe.forms:
                e.probe.run(ACTING, before)
                recorded = e.subject.get_memory()
                acted = e.probe.run_on(after)
            else:
                recorded = e.probe.run(STEPPING, before).final
                acted = e.probe.run(STEPPING, replace(after, start=recorded))
            replayed, actions = replace(after, start=recorded), acted.outputs.get(ACTIONS)
            scored = e.probe.run(SEQUENCE, replayed, actions)
            upto = steps if e.learning_resets else 2  # what follows an end is another check's
            size = float(differences(acted.outputs, scored.outputs)[:upto].max())
            said = f"replayed from the recorded memory, {steps} steps of {slots} slots are {size:.2g} away from those lived"
            tally.still(SEQUENCE, size, f"{SEQUENCE}: {said}", SAME + 10 * e.rounding_of_actions(replayed, actions))
