"""Looking changes nothing, and sees what acting would see: values for a bootstrap."""

from __future__ import annotations

import contextlib

import torch

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences, stacked
from holdfast.audit.examination import Examination
from holdfast.audit.findings import Tally
from holdfast.audit.script import ACTING, LOOKING, VALUE, Script, arriving
from holdfast.audit.subject import NotOfferedError, Outputs, copied

CHECKS = Register()


@CHECKS(
    cost="Each bootstrap advances or clears the memory that acting continues from (rsl_rl shipped this).",
    mend="Compute values from a copy of the state, and do not store what comes out.",
    look_at="look",
    quick=True,
)
def looking_leaves_memory_alone(e: Examination, tally: Tally) -> None:
    """Computing a value, with or without an episode end, does not touch memory."""
    e.has_state()
    e.probe.needs(ACTING)
    with torch.no_grad():
        e.probe.run(ACTING, e.probe.script(T=3, B=3))
        for ends in ({}, {1: [0]}):
            kept = copied(e.subject.get_memory())
            e.subject.look(*arriving(e.probe.script(T=1, B=3, ends=ends), 0))
            tally.still(LOOKING, *e.moved_memory(kept, "computing a value"))


@CHECKS(
    cost="Advantages are bootstrapped with another value than the one that is learned: an error at every end of a rollout.",
    mend="Compute a value that is only looked up with the code, the memory and the flags that acting has there.",
    look_at="look",
    quick=True,
)
def looking_gives_the_value(e: Examination, tally: Tally) -> None:
    """A value that is only looked up is the one that acting puts out there."""
    with torch.no_grad():
        for ends in ({}, {2: [0]}):
            script = e.probe.script(T=1, B=3, ends=ends)
            for form, pair in ((VALUE, _value_and_step), (LOOKING, _look_and_act)):
                with contextlib.suppress(NotOfferedError):
                    looked, acted = pair(e, script)
                    size = float(differences(stacked([looked]), stacked([acted]), ("value",)).max())
                    at = " where an episode begins" if ends else ""
                    said = f"a value that is looked up{at} is {size:.2g} away from the one that acting puts out"
                    tally.still(form, size, f"{form}: {said}")
    if not tally.measured:
        raise NotOfferedError("it has no call that only looks up a value, or acting puts out none")


def _value_and_step(e: Examination, script: Script) -> tuple[Outputs, Outputs]:
    obs, first = script.obs[0], script.first[0]
    return e.subject.value(obs, script.copy().start, first), e.subject.step(obs, script.copy().start, first)[0]


def _look_and_act(e: Examination, script: Script) -> tuple[Outputs, Outputs]:
    some = [2, 0]  # not in order: memory goes by number
    e.subject.set_memory(script.start)
    return e.subject.look(*arriving(script, 0, some)), e.subject.act(*arriving(script, 0, some))
