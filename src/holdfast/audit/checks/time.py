"""Memory carries through time: it is used, the same step by step and all at once, and starts where it should."""

from __future__ import annotations

from dataclasses import replace

import torch

from holdfast.audit.checks.register import Register
from holdfast.audit.examination import Examination
from holdfast.audit.findings import SAME, Tally
from holdfast.audit.probe import ACTING, AWKWARD_ENDS, SEQUENCE, STEPPING, differences, state_differences
from holdfast.audit.subject import ACTIONS, NotOfferedError

CHECKS = Register()
LONG = 70  # longer than the chunks and windows people cut memory into
# Steps, slots and how far outputs may be apart. Sizes that tell T from B; over many steps, rounding may be blown up.
SIZES = ((6, 4, SAME), (4, 6, SAME), (5, 1, SAME), (LONG, 2, 1e-2))


@CHECKS(
    cost="Silently memoryless: the policy can only be as good as one without memory.",
    mend="Hand the state of one step to the next: look for a forgotten state argument, one replaced by zeros, or a mask that is "
    "turned round (done instead of 1 - done). A policy without memory says so: --declare memoryless.",
    excused_by=("memoryless",),
    quick=True,
    root=1,
)
def memory_is_used(e: Examination, tally: Tally) -> None:
    """An observation changes what the policy puts out later in its episode."""
    for form in e.probe.forms:
        found = e.changes(form)
        later = found.allowed.clone()
        for t in range(len(found.first)):
            later[t + 1, :, t] = False
        later[0] = False
        e.something_moves(tally, form, later, "no observation changes any later output")


@CHECKS(
    cost="What is not seen cannot be acted on. A first observation that is missed often is the one that mattered.",
    mend="Look for observations that are masked, shifted by a step, or replaced where an episode begins.",
    quick=True,
)
def every_observation_is_seen(e: Examination, tally: Tally) -> None:
    """Each observation changes what the policy puts out on it, the first of an episode too."""
    for form in e.probe.forms:
        found = e.changes(form)
        for t in range(len(found.first)):
            for b in range(found.first.shape[1]):
                cells = torch.zeros_like(found.allowed)
                cells[t + 1, b, t, b] = True
                where = " (it opens an episode)" if found.first[t, b] else ""
                said = f"the observation of slot {b} at step {t} changes nothing there{where}"
                e.something_moves(tally, form, cells, said)


@CHECKS(
    cost="What an episode opens with is gone at its second step: a cue shown once can never be used.",
    mend="Clear the state before the step on a first observation, not after it: look for flags that come a step late.",
    excused_by=("memoryless",),
    quick=True,
)
def first_observations_are_remembered(e: Examination, tally: Tally) -> None:
    """The observations that open episodes change what the policy puts out later in them."""
    for form in e.probe.forms:
        found = e.changes(form)
        later = torch.zeros_like(found.allowed)
        for t, b in found.first[:-1].nonzero().tolist():
            later[t + 1, b, t + 1 :] = found.allowed[t + 1, b, t + 1 :]
        e.something_moves(tally, form, later, "no observation that opens an episode changes anything after its step")


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
        for steps, slots, limit in SIZES:
            shown = {slot: [t for t in at if t < steps] for slot, at in ends.items() if slot < slots}
            script = e.probe.script(T=steps, B=slots, ends=shown, blank=True)
            stepped = e.probe.run(STEPPING, script)
            whole = e.probe.run(SEQUENCE, script, stepped.outputs.get(ACTIONS))
            apart = differences(stepped.outputs, whole.outputs)
            size, t, b = float(apart.max()), int(apart.argmax()) // slots, int(apart.argmax()) % slots
            said = f"{steps} steps of {slots} slots at once are {size:.2g} away from single steps (slot {b}, step {t})"
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
    scored = replace(script, ended_by="terminated")
    with torch.no_grad():
        actions = e.probe.run(STEPPING, script).outputs.get(ACTIONS)
        one, other = (e.probe.run(SEQUENCE, shown, actions).outputs for shown in (script, scored))
        size = float(differences(one, other).max())
        tally.still(SEQUENCE, size, f"score: outputs are {size:.2g} away from those of a sequence")
    ours, theirs = (e.gradients_by_start(shown, actions) for shown in (script, scored))
    most = max((float(leaf.abs().max()) for leaf in ours), default=0.0)
    if most:
        size = max(float((x - y).abs().max()) for x, y in zip(ours, theirs, strict=True)) / most
        said = f"score: gradients by the start state are {size:.2g} of the largest away from those of a sequence"
        tally.still(SEQUENCE, size, said, limit=1e-3)


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
    cost="Learning starts every segment from nothing: memory longer than a horizon is never learned, and ratios are wrong.",
    mend="Store the state that each segment began with, and start learning from it.",
    look_at="sequence",
    excused_by=("zero_start_states", "memoryless"),
    quick=True,
)
def the_start_state_is_used(e: Examination, tally: Tally) -> None:
    """What a policy puts out depends on the state it starts from."""
    e.has_state()
    for form in e.probe.forms:
        e.something_moves(tally, form, e.changes(form).from_the_start, "the start state changes nothing")


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
        before, after = e.probe.script(T=3), e.probe.script(T=4, ends={1: [2]})
        if ACTING in e.probe.forms:
            e.probe.run(ACTING, before)
            recorded = e.subject.get_memory()
            acted = e.probe.run_on(after)
        else:
            recorded = e.probe.run(STEPPING, before).final
            acted = e.probe.run(STEPPING, replace(after, start=recorded))
        scored = e.probe.run(SEQUENCE, replace(after, start=recorded), acted.outputs.get(ACTIONS))
        upto = 4 if e.learning_resets else 2  # what follows an end is another check's
        size = float(differences(acted.outputs, scored.outputs)[:upto].max())
        said = f"{SEQUENCE}: replayed from the recorded memory, outputs are {size:.2g} away from those lived"
        tally.still(SEQUENCE, size, said)


@CHECKS(
    cost="Nothing is learned across time: the policy remembers, but never learns what to remember.",
    mend="Detach the state between calls only, never between the steps of one sequence. A tensor of the state that only selects "
    "(a mask) is named in no_gradient.",
    look_at="sequence",
    excused_by=("memoryless", "truncated_gradients"),
    quick=True,
)
def gradients_flow_within_an_episode(e: Examination, tally: Tally) -> None:
    """Whatever an output answers to in its episode, it has a gradient by."""
    e.has_state()
    form = SEQUENCE if SEQUENCE in e.probe.forms else STEPPING  # acting may well be detached from step to step
    changes, gradients = e.changes(form), e.gradients(form)
    answers = changes.allowed & (changes.size > SAME) & gradients.measured
    if not answers.any():
        raise NotOfferedError("no output moves with anything that has a gradient")
    lost = answers & (gradients.size == 0)
    size, output, source = changes.largest(lost)
    said = f"{form}: {output} moves by {size:.2g} with {source}, and has no gradient by it"
    tally.holds(form, not lost.any(), said)
    for i in e.leaves_without_gradient(form):
        tally.holds(form, False, f"{form}: outputs have no gradient by tensor {i} of the start state")
