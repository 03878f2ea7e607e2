"""Episodes are separate: what came before a first observation is gone, forwards and backwards."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences
from holdfast.audit.examination import Examination
from holdfast.audit.failing import PolicyRaisedError, UnusableError, raised_by_the_auditor
from holdfast.audit.findings import Tally
from holdfast.audit.script import ACTING, AWKWARD_ENDS, MANY, SCORING, STEPPING, T
from holdfast.audit.subject import ACROSS_EPISODES, ACTIONS, NotOfferedError

CHECKS = Register()
COST = "Episodes run into each other: the policy acts on a past that is not its own, and returns stay near chance."


def _crossing(e: Examination, form: str, slot: int, at: Tensor) -> Tensor:
    """Cells of one slot that reach over an episode start into these steps [T] of outputs."""
    cells = e.changes(form).across_a_start & at[None, None, :, None]
    only = torch.zeros_like(cells)
    only[:, slot] = cells[:, slot]
    return only


def _steps(*numbers: int) -> Tensor:
    chosen = torch.zeros(T, dtype=torch.bool)
    chosen[list(numbers)] = True
    return chosen


@CHECKS(
    cost=COST,
    mend="Zero the state of every slot whose first flag is set before the very first step of a call, too.",
    excused_by=ACROSS_EPISODES,
    quick=True,
)
def reset_at_the_first_step(e: Examination, tally: Tally) -> None:
    """A flag on the first step of a call clears the start state."""
    e.has_state()
    for form in e.probe.forms:
        cells = _crossing(e, form, 2, _steps(0, 1, 2, 3, 4))
        cells[1:] = False
        e.nothing_moves(tally, form, cells)


@CHECKS(
    cost=COST,
    mend="Reset inside the sequence: step through time and mask the state by first[t], or split at episode starts.",
    look_at="sequence",
    excused_by=ACROSS_EPISODES,
    quick=True,
)
def reset_inside(e: Examination, tally: Tally) -> None:
    """A flag inside a sequence separates what comes before it from what comes after."""
    for form in e.probe.forms:
        e.nothing_moves(tally, form, _crossing(e, form, 1, _steps(3, 4, 5)))


@CHECKS(
    cost="One step in every horizon acts on another episode's memory, and so does the value that ends the segment.",
    mend="Look for loops over range(T - 1), and for flags shifted by one step.",
    look_at="sequence",
    excused_by=ACROSS_EPISODES,
)
def reset_at_the_last_step(e: Examination, tally: Tally) -> None:
    """A flag on the last step of a sequence counts as any other."""
    for form in e.probe.forms:
        e.nothing_moves(tally, form, _crossing(e, form, 2, _steps(5)))


@CHECKS(
    cost="Episodes of one step leak into the next: rare, so it shows late and looks like noise.",
    mend="Reset wherever first is set; do not look for changes of the flag.",
    excused_by=ACROSS_EPISODES,
)
def reset_twice_in_a_row(e: Examination, tally: Tally) -> None:
    """Flags on two successive steps both count."""
    for form in e.probe.forms:
        e.nothing_moves(tally, form, _crossing(e, form, 3, _steps(2, 3, 4, 5)))


@CHECKS(
    cost="Half of the memory survives the end of an episode, and leaks into everything after it.",
    mend="Clear every tensor of the state (an LSTM has two: h and c).",
    excused_by=ACROSS_EPISODES,
)
def every_part_of_the_state_is_reset(e: Examination, tally: Tally) -> None:
    """A reset clears every tensor of the state, in every layer."""
    e.has_state()
    with torch.no_grad():
        for form in e.probe.forms:
            script = e.probe.script(T=3, ends={0: [0]})
            usual = e.probe.run(form, script)
            actions = usual.outputs.get(ACTIONS)
            other = e.probe.any_state(script.first.shape[1])
            for i, leaf in enumerate(script.start):
                layers = range(len(leaf)) if e.has_layers(leaf) else [slice(None)]
                for layer in layers:
                    changed = leaf.clone()
                    changed[layer] = other[i][layer]
                    if changed.equal(leaf):
                        continue  # a mask, say, that is as a few steps left it
                    outputs = e.probe.run(form, script.with_start_leaf(i, changed), actions).outputs
                    size = float(differences(usual.outputs, outputs)[:, 0].max())
                    part = f"tensor {i} of the state" + (f", layer {layer}," if isinstance(layer, int) else "")
                    tally.still(form, size, f"{form}: {part} got through a reset and moved an output by {size:.2g}")


@CHECKS(
    cost="Many callers keep flags as integers or floats. Memory is then cleared at the wrong steps, or that of slots 0 and 1 only.",
    mend="Turn flags into booleans first (first != 0): an integer tensor used as an index picks slots 0 and 1, and ~ of the "
    "integer 0 is 255 or -1. If flags are boolean wherever the policy is called: --declare boolean_flags.",
    excused_by=("boolean_flags",),
    quick=True,
)
def integer_flags(e: Examination, tally: Tally) -> None:
    """Flags given as integers or floats mean the same as booleans."""
    if e.subject.flags_are_cast:
        raise NotOfferedError(e.subject.flags_are_cast)
    refused = []
    with torch.no_grad():
        for form in e.probe.forms:
            script = e.probe.script(ends={0: [3], 1: [1], 2: [1, 4]})
            usual = e.probe.run(form, script)
            for dtype in (torch.int64, torch.uint8, torch.float32):
                changed = script.with_first(script.first.to(dtype))
                try:
                    outputs = e.probe.run(form, changed, usual.outputs.get(ACTIONS)).outputs
                except UnusableError as error:
                    if isinstance(error, PolicyRaisedError):
                        refused.append(f"{str(dtype)[6:]} flags are refused in {form}")
                    else:  # answered with what is no answer
                        tally.holds(form, False, f"with flags as {str(dtype)[6:]}, {error}")
                    continue
                except Exception as error:
                    if raised_by_the_auditor(error):
                        raise
                    # refused aloud: no bug that trains in silence
                    refused.append(f"{str(dtype)[6:]} flags are refused in {form}: {type(error).__name__}")
                    continue
                size = float(differences(usual.outputs, outputs).max())
                tally.still(form, size, f"{form}: outputs moved by {size:.2g} when flags came as {str(dtype)[6:]}")
    tally.remark = ", ".join(refused)
    if not tally.measured:
        raise NotOfferedError(f"flags that are not boolean are refused: {tally.remark}")


@CHECKS(
    cost="Evaluation in a single environment never forgets, or fails, while training with many looked right.",
    mend="Look for squeeze() without an axis, and for conditions on first.any() or len(first).",
    excused_by=ACROSS_EPISODES,
)
def reset_with_one_slot(e: Examination, tally: Tally) -> None:
    """A single slot is reset like any other."""
    e.has_state()
    with torch.no_grad():
        for form in e.probe.forms:
            for ends in ([0], [2]):
                script = e.probe.script(T=4, B=1, ends={0: ends})
                usual = e.probe.run(form, script)
                changed = replace(script, start=e.probe.any_state(1))
                outputs = e.probe.run(form, changed, usual.outputs.get(ACTIONS)).outputs
                size = float(differences(usual.outputs, outputs)[ends[0] :].max())
                said = f"{form}: with one slot, its start state moved the output after a reset at step {ends[0]} by {size:.2g}"
                tally.still(form, size, said)


@CHECKS(
    cost="Episodes after the first begin from another memory than evaluation and learning begin from.",
    mend="Reset to what initial_state gives, also where that is learned or not zero.",
    excused_by=ACROSS_EPISODES,
)
def a_reset_is_a_blank_start(e: Examination, tally: Tally) -> None:
    """An episode begun by a flag is one begun from the blank state."""
    e.has_state()
    with torch.no_grad():
        for form in e.probe.forms:
            script = e.probe.script(T=3, B=MANY, ends={b: [0] for b in range(MANY)})
            flagged = e.probe.run(form, script).outputs
            blank = replace(script, start=e.subject.initial_state(MANY), first=torch.zeros_like(script.first))
            size = float(differences(flagged, e.probe.run(form, blank, flagged.get(ACTIONS)).outputs).max())
            tally.still(form, size, f"{form}: after a reset outputs are {size:.2g} away from those of a blank state")


@CHECKS(
    cost="Whenever any episode ends, agents in the middle of theirs lose their memory.",
    mend="Mask the state slot by slot, with first of shape [1, B, 1]; not by first.any().",
    quick=True,
)
def only_the_ended_are_reset(e: Examination, tally: Tally) -> None:
    """The end of one slot's episode leaves the others' memory alone."""
    with torch.no_grad():
        for form in e.probe.forms:
            script = e.probe.script(ends={1: [2], 2: [0, 4]})
            usual = e.probe.run(form, script)
            calm = script.with_first(torch.zeros_like(script.first))
            outputs = e.probe.run(form, calm, usual.outputs.get(ACTIONS)).outputs
            apart = differences(usual.outputs, outputs)[:, [0, 3]]
            size = float(apart.max())
            tally.still(form, size, f"{form}: a slot whose episode went on moved by {size:.2g} when others' ended")


def _ended_by(e: Examination, tally: Tally, kind: str) -> None:
    """Memory must not get through an end of this kind, acting or scoring."""
    e.has_state()
    e.probe.needs(ACTING)
    with torch.no_grad():
        script = replace(e.probe.script(T=4, B=3, ends={1: [2]}), ended_by=kind)
        other = replace(script, start=e.probe.any_state(3))
        actions = e.probe.run(STEPPING, script).outputs.get(ACTIONS)
        for form in (ACTING, SCORING):
            try:
                usual, changed = (e.probe.run(form, shown, actions).outputs for shown in (script, other))
            except NotOfferedError as reason:
                tally.remark = f"only acting was looked at: {reason}"
                continue
            size = float(differences(usual, changed)[2:, 1].max())
            said = f"{form}: memory got through an episode that was {kind} and moved an output by {size:.2g}"
            tally.still(form, size, said)


@CHECKS(cost=COST, mend="Reset on terminated | truncated.", look_at="act", excused_by=ACROSS_EPISODES, quick=True)
def reset_on_terminated(e: Examination, tally: Tally) -> None:
    """An episode that the world ended is over."""
    _ended_by(e, tally, "terminated")


@CHECKS(
    cost="Worlds that only ever time out (Pendulum, most games) are never reset.",
    mend="Reset on terminated | truncated: both end the episode, whatever they mean for the value.",
    look_at="act",
    excused_by=ACROSS_EPISODES,
    quick=True,
)
def reset_on_truncated(e: Examination, tally: Tally) -> None:
    """An episode that was cut is over, too."""
    _ended_by(e, tally, "truncated")


@CHECKS(
    cost="Memory differs by why an episode ended, though the next one knows nothing of it: time limits look like another world.",
    mend="Let one flag decide, terminated | truncated, slot by slot. Both may be set at once, so not ^ and not a sum that is 1.",
    look_at="act",
)
def how_an_episode_ended_makes_no_difference(e: Examination, tally: Tally) -> None:
    """Episodes that were terminated, truncated, or both, are followed by the same."""
    e.probe.needs(ACTING)
    with torch.no_grad():
        script = e.probe.script(ends=AWKWARD_ENDS)
        actions = e.probe.run(STEPPING, script).outputs.get(ACTIONS)
        for form in (ACTING, SCORING):
            try:
                ended, *others = (
                    e.probe.run(form, replace(script, ended_by=how), actions).outputs
                    for how in ("terminated", "truncated", "both")
                )
            except NotOfferedError as reason:
                tally.remark = f"only acting was looked at: {reason}"
                continue
            for how, outputs in zip(("truncated", "both at once"), others, strict=True):
                size = float(differences(ended, outputs).max())
                tally.still(form, size, f"{form}: outputs moved by {size:.2g} when ends were {how}, not terminated")
