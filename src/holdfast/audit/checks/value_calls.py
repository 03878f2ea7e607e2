"""Bootstrap values: computing one changes nothing, and gives the value of acting."""

from __future__ import annotations

from contextlib import suppress

from holdfast.audit.checks.register import Register
from holdfast.audit.compare import differences, stack_steps
from holdfast.audit.context import Context
from holdfast.audit.findings import Tally
from holdfast.audit.script import ACT, VALUE, VALUE_FROM_MEMORY, Script, act_inputs
from holdfast.audit.subject import NotOfferedError, Outputs, copy_state

CHECKS = Register()


@CHECKS(
    cost="Each bootstrap advances or clears the memory that acting continues from (rsl_rl shipped this).",
    fix="Compute values from a copy of the state, and do not store the new state.",
    look_at="value_from_memory",
    quick=True,
)
def value_call_does_not_write_memory(ctx: Context, tally: Tally) -> None:
    """Computing a bootstrap value does not change the policy's memory."""
    ctx.require_state()
    ctx.probe.require(ACT)
    ctx.probe.run(ACT, ctx.probe.script(T=3, B=3))
    for resets in ({}, {1: [0]}):
        kept = copy_state(ctx.subject.get_memory())
        ctx.subject.value_from_memory(*act_inputs(ctx.probe.script(T=1, B=3, resets=resets), 0))
        tally.expect_unchanged(VALUE_FROM_MEMORY, *ctx.memory_change(kept, "computing a value"))


@CHECKS(
    cost="Advantages bootstrap from another value than the one that is learned: an error at the end of every rollout.",
    fix="Compute bootstrap values with the code, the memory and the flags that acting uses.",
    look_at="value_from_memory",
    quick=True,
)
def value_call_equals_acting(ctx: Context, tally: Tally) -> None:
    """A bootstrap value equals the value that acting returns for the same observation."""
    for resets in ({}, {2: [0]}):
        script = ctx.probe.script(T=1, B=3, resets=resets)
        for call, pair in ((VALUE, _value_and_step), (VALUE_FROM_MEMORY, _value_and_act)):
            with suppress(NotOfferedError):
                computed, acted = pair(ctx, script)
                size = float(differences(stack_steps([computed]), stack_steps([acted]), ("value",)).max())
                at = " where an episode starts" if resets else ""
                tally.expect_unchanged(call, size, f"the value{at} is {size:.2g} away from the one of acting")
    if not tally.measured:
        raise NotOfferedError("it has no call that only computes values, or acting returns no value")


def _value_and_step(ctx: Context, script: Script) -> tuple[Outputs, Outputs]:
    obs, first = script.obs[0], script.first[0]
    return ctx.subject.value(obs, script.copy().start, first), ctx.subject.step(obs, script.copy().start, first)[0]


def _value_and_act(ctx: Context, script: Script) -> tuple[Outputs, Outputs]:
    some = [2, 0]  # out of order, so that slot ids are not positions
    ctx.subject.set_memory(script.start)
    return ctx.subject.value_from_memory(*act_inputs(script, 0, some)), ctx.subject.act(*act_inputs(script, 0, some))
