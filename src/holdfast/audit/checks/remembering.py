"""Memory is used: what was seen, from the opening of an episode on, and what a state holds change what comes out."""

from __future__ import annotations

from dataclasses import replace

import torch

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences, of_the_policy
from holdfast.audit.examination import Examination
from holdfast.audit.findings import MOVED, Tally
from holdfast.audit.script import MANY, Script
from holdfast.audit.subject import ACTIONS

CHECKS = Register()
TRIES = 8  # a memory may be choosy: few observations flip an argmax, or are a cue at all


@CHECKS(
    cost="Silently memoryless: the policy can only be as good as one without memory.",
    mend="Hand the state of one step to the next: look for a forgotten state argument, one replaced by zeros, or a mask that is "
    "turned round (done instead of 1 - done). A policy without memory says so: --declare memoryless.",
    excused_by=("memoryless",),
    quick=True,
    root=1,
)
def memory_is_used(e: Examination, tally: Tally) -> None:
    """An observation changes what actions are drawn by later in its episode; values alone are not enough."""
    for form in e.probe.forms:
        size = _carried(e, form, opens=False)
        tally.moves(form, size, f"{form}: no observation changes any later output (largest movement {size:.1e})")


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
            size, _, _ = found.largest(chosen)
            tally.moves(form, size, f"{form}: no observation {which} changes anything there ({size:.1e})")
        with torch.no_grad():
            script = e.probe.script(T=1, B=MANY)
            if "value" in e.probe.run(form, script).outputs:
                size = _farthest(e, form, script, replace(script, obs=script.obs.roll(1, 1)), ("value",))
                tally.moves(form, size, f"{form}: no observation changes the value that is put out on it ({size:.1e})")


@CHECKS(
    cost="What an episode opens with is gone at its second step: a cue shown once can never be used.",
    mend="Clear the state before the step on a first observation, not after it: look for flags that come a step late.",
    excused_by=("memoryless",),
    quick=True,
)
def first_observations_are_remembered(e: Examination, tally: Tally) -> None:
    """The observations that open episodes change what the policy puts out later in them."""
    for form in e.probe.forms:
        size = _carried(e, form, opens=True)
        said = f"no observation that opens an episode changes anything after its step (largest movement {size:.1e})"
        tally.moves(form, size, f"{form}: {said}")


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
    with torch.no_grad():
        for form in e.probe.forms:
            size = _answer_to_state(e, form)
            tally.moves(form, size, f"{form}: the start state changes nothing (largest movement {size:.1e})")


@CHECKS(
    cost="Part of the memory is carried along and never read: the policy remembers less than it seems to.",
    mend="Look for a tensor of the state that is overwritten, replaced by zeros, or taken from somewhere else at every step. What "
    "is not memory need not be in the state; what only selects or counts is named in no_gradient.",
    excused_by=("zero_start_states", "memoryless"),
)
def every_tensor_of_the_state_is_used(e: Examination, tally: Tally) -> None:
    """What a policy puts out depends on each tensor of the state it starts from."""
    e.has_state()
    with torch.no_grad():
        for form in e.probe.forms:
            for i, leaf in enumerate(e.subject.initial_state(1)):
                if e.probe.is_real(i, leaf):  # a counter or a mask may matter later on only
                    size = _answer_to_state(e, form, i)
                    tally.moves(form, size, f"{form}: tensor {i} of the start state changes nothing ({size:.1e})")


def _answer_to_state(e: Examination, form: str, i: int | None = None) -> float:
    """How far outputs move with the start state, or tensor i of it: of any numbers or, if that shows nothing, as steps leave it."""
    size = 0.0
    for turn in range(TRIES):
        script = e.probe.script(T=3, B=MANY)
        other = e.probe.any_state(MANY)
        if turn:
            script, other = replace(script, start=e.probe.lived_state(MANY)), e.probe.lived_state(MANY)
        usual = e.probe.run(form, script).outputs
        changed = replace(script, start=other) if i is None else script.with_start_leaf(i, other[i])
        outputs = e.probe.run(form, changed, usual.get(ACTIONS)).outputs
        size = max(size, float(differences(usual, outputs).max()))
        if size > MOVED:
            break
    return size


def _farthest(
    e: Examination, form: str, script: Script, other: Script, names: tuple[str, ...], since: int = 0
) -> float:
    """How far outputs of these names, or else what actions are drawn by, from this step on move from one script to the other."""
    usual = e.probe.run(form, script).outputs
    outputs = e.probe.run(form, other, usual.get(ACTIONS)).outputs
    repeats = e.probe.actions_repeat
    if not names and (
        repeats or of_the_policy(usual) != ("log_prob",)
    ):  # if not, values have to do: it is of other actions
        names = (*of_the_policy(usual), ACTIONS)
    return float(differences(usual, outputs, names, actions_too=repeats)[since:].max())


def _carried(e: Examination, form: str, opens: bool) -> float:
    """How far the first observation of any slot moves what actions are drawn by at later steps."""
    size = 0.0
    with torch.no_grad():
        for turn in range(TRIES):
            script = e.probe.script(T=5, B=MANY, ends={b: [0] for b in range(MANY)} if opens else {})
            other = script.obs.clone()
            other[0] = script.obs[0].roll(1 + turn, 0)
            size = max(size, _farthest(e, form, script, replace(script, obs=other), (), since=1))
            if size > MOVED:
                break
    return size
