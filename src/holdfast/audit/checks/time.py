"""Memory carries through time: it is used, the same step by step and all at once, and starts where it should."""

from __future__ import annotations

from dataclasses import replace

import torch

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences, state_differences
from holdfast.audit.examination import Examination
from holdfast.audit.findings import SAME, Tally
from holdfast.audit.script import ACTING, AWKWARD_ENDS, SCORING, SEQUENCE, STEPPING, Script
from holdfast.audit.subject import ACTIONS, NotOfferedError

CHECKS = Register()
SIZES = ((6, 4), (4, 6), (5, 1))  # steps and slots: sizes that tell T from B
LONG = 70  # longer than the chunks and windows people cut memory into
LATE_ENDS = {0: [2, 8, 40], 1: [1, 2, 17, 33, LONG - 1]}
TOO_WILD = 0.1  # where rounding grows to this, nothing can be said about a long sequence


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
        e.something_moves(tally, form, e.changes(form).later, "no observation changes any later output")


@CHECKS(
    cost="What is not seen cannot be acted on. A first observation that is missed often is the one that mattered.",
    mend="Look for observations that are masked, shifted by a step, or replaced where an episode begins.",
    quick=True,
)
def every_observation_is_seen(e: Examination, tally: Tally) -> None:
    """Observations change what the policy puts out on them: in every slot, at every step, the first of an episode too."""
    for form in e.probe.forms:
        found = e.changes(form)
        T, B = found.first.shape
        own = torch.zeros_like(found.allowed)
        for t in range(T):
            own[t + 1, :, t] = torch.eye(B, dtype=torch.bool)
        groups = {f"at step {t}": (torch.arange(T) == t)[:, None].expand(T, B) for t in range(T)}
        groups |= {f"of slot {b}": (torch.arange(B) == b).expand(T, B) for b in range(B)}
        inside = found.first & (torch.arange(T) > 0)[:, None]
        groups |= {"that opens an episode": found.first & ~inside, "that opens an episode inside": inside}
        for which, cells in groups.items():  # [T, B]; not each by itself: one may be too small to change a maximum
            chosen = own & torch.cat([torch.zeros_like(cells[:1]), cells])[:, :, None, None]
            e.something_moves(tally, form, chosen, f"no observation {which} changes anything there")


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
        opening = torch.cat([torch.zeros_like(found.first[:1]), found.first])[:, :, None, None]
        said = "no observation that opens an episode changes anything after its step"
        e.something_moves(tally, form, found.later & opening, said)


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
        long = e.probe.script(T=LONG, B=2, ends=LATE_ENDS if ends else {}, blank=True)
        limit = SAME + 10 * _blown_up(e, long)  # a sequence rounds otherwise at every step, a nudge only once
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
    tally.still(SEQUENCE, size, f"{SEQUENCE}: {said}", limit)


def _blown_up(e: Examination, script: Script) -> float:
    """How far a nudge of the size of rounding, early on, moves outputs by the end of an unbroken episode."""
    calm = script.with_first(torch.zeros_like(script.first))
    head, tail = (replace(calm, obs=calm.obs[part], first=calm.first[part]) for part in (slice(5), slice(5, None)))
    state = e.probe.run(STEPPING, head).final
    nudged = tuple(leaf * (1 + 1e-6) if leaf.is_floating_point() or leaf.is_complex() else leaf for leaf in state)
    one, other = (e.probe.run(STEPPING, replace(tail, start=start)).outputs for start in (state, nudged))
    return float(differences(one, other).max())


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
    cost="Part of the memory is carried along and never read: the policy remembers less than it seems to.",
    mend="Look for a tensor of the state that is overwritten, replaced by zeros, or taken from somewhere else at every step. What "
    "is not memory need not be in the state.",
    excused_by=("zero_start_states", "memoryless"),
)
def every_tensor_of_the_state_is_used(e: Examination, tally: Tally) -> None:
    """What a policy puts out depends on each tensor of the state it starts from."""
    e.has_state()
    with torch.no_grad():
        for form in e.probe.forms:
            script = e.probe.script(T=3)
            usual = e.probe.run(form, script)
            other = e.probe.any_state(script.first.shape[1])
            for i, leaf in enumerate(script.start):
                if not e.probe.is_real(i, leaf):
                    continue  # a counter or a mask may matter later on only
                changed = script.with_start_leaf(i, other[i])
                outputs = e.probe.run(form, changed, usual.outputs.get(ACTIONS)).outputs
                size = float(differences(usual.outputs, outputs).max())
                tally.moves(form, size, f"{form}: tensor {i} of the start state changes nothing ({size:.1e})")


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
