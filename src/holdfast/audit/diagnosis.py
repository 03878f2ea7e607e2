"""Find the cause of failed checks: steps that use the wrong flag or observation, or outputs that differ in learning.

One bug fails many checks, and the advice of each check has to cover many bugs. So after failures, a few more
experiments are run. If they find a cause, its fix replaces the advice of the checks that it explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.audit.adapters.common import last_steps
from holdfast.audit.checks import calls, episodes, memory_use, sequences, slots
from holdfast.audit.compare import differences
from holdfast.audit.context import Context
from holdfast.audit.findings import SAME, Finding, Verdict
from holdfast.audit.script import ACT, SEQUENCE, STEP
from holdfast.audit.subject import ACTIONS, NotOfferedError, UnusableError, raised_by_auditor

Route = Callable[[Tensor], Tensor]  # correct flags or inputs [T, B] -> those a buggy policy uses


class Cause(NamedTuple):
    what: str
    fix: str
    forms: tuple[str, ...] = ()  # the calls that have it


def _later(x: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(x[:1]), x[:-1]])


HALF_PRECISION = 0.02  # outputs differ by less if they are computed in bfloat16, whose rounding errors are up to 0.004
OFF_BY_ONE = "Look for a roll, an offset by one, or a sort of the batch."
RESHAPE = "Bring [B, T] to [T, B] with transpose, not with reshape or view."
BY_SLOT = "Mask the state slot by slot, with first as [1, B, 1]"
STATISTIC = "Look for a statistic over the batch: mean, max, BatchNorm."
# fmt: off
FLAG_ROUTES: list[tuple[str, str, Route]] = [
    ("the flag of a slot resets the next slot", OFF_BY_ONE, lambda x: x.roll(1, 1)),
    ("the flag of a slot resets the slot before it", OFF_BY_ONE, lambda x: x.roll(-1, 1)),
    ("the flags of slot 0 are used for all slots", f"{BY_SLOT}, not by first[:, 0].", lambda x: x[:, :1].expand_as(x)),
    ("the flags of the last slot are used for all", f"{BY_SLOT}, not by first[:, -1].", lambda x: x[:, -1:].expand_as(x)),
    ("a flag of any slot resets all slots", f"{BY_SLOT}, not by first.any().", lambda x: x.any(1, True).expand_as(x)),
    ("flags [T, B] are read as [B, T]", RESHAPE, lambda x: x.reshape(x.shape[::-1]).T),
    ("flags take effect one step late", "Reset before the step that gets the first observation, not after it.", _later),
    ("flags take effect one step early", "Use first[t] with observation t.", last_steps),
    ("flags are used as indices: slot 1 is reset, whichever flag is set", "Convert flags to booleans: state[:, first != 0].",
     lambda x: torch.zeros_like(x).scatter_(1, x.long(), torch.ones_like(x))),
    ("only flags of the first step of a call count", "Reset inside sequences too, at each first[t].", lambda x: x ^ _later(last_steps(x))),
    ("flags of the first step of a call are ignored", "Apply first[0] to the start state.", lambda x: _later(last_steps(x))),
    ("flags of the last step of a call are ignored", "Look for loops over range(T - 1).", lambda x: last_steps(_later(x))),
    ("flags have no effect", "Reset the state of each slot where its flag is set.", torch.zeros_like),
]
INPUT_ROUTES: list[tuple[str, str, Route]] = [
    ("an observation moves all slots of its step", STATISTIC, lambda x: x.any(1, True).expand_as(x)),
    ("an observation moves all slots and steps", STATISTIC, lambda x: x.any().expand_as(x)),
    ("observations [T, B] are read as [B, T]", RESHAPE, lambda x: x.reshape(x.shape[::-1]).T),
    ("the observation of a slot enters the next slot", OFF_BY_ONE, lambda x: x.roll(1, 1)),
    ("the observation of a slot enters the slot before it", OFF_BY_ONE, lambda x: x.roll(-1, 1)),
    ("an observation enters the step before it", "Look for observations shifted by a step.", lambda x: x | last_steps(x)),
]
ONLY_LOG_PROBS = Cause(
    "only log-probs differ in learning; memory and heads agree",
    "Look at the density: the action that is scored, the correction for tanh, the deviation or temperature, and the sum over "
    "the parts of an action.",
)
ONLY_ACTOR = Cause(
    "the action distribution differs in learning, but values agree, so memory does too",
    "Look at the head of the actor: a temperature, deviation, action mask or copy of weights that only one of them uses.",
)
ONLY_CRITIC = Cause(
    "only values differ in learning; the action distribution agrees, so memory does too",
    "Look at the critic: it reads other features or other weights than in acting.",
)
CAST = Cause(
    "learning differs at all steps, and only as much as rounding to bfloat16 does",
    "Look for a cast that only acting or only learning has: autocast, half(), bfloat16, or states stored as such.",
)
# fmt: on


def diagnose(ctx: Context, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, with the cause and its fix in those that it explains."""
    failed = {f.check.name: f.check.root for f in findings if f.verdict == Verdict.FAIL and not f.cause}
    if 2 in failed.values():  # equal calls may not give equal outputs, so experiments would mislead
        return [*findings]
    for modules, experiment in (
        ((episodes, sequences, memory_use), _misrouted_flags),
        ((slots, sequences), _misrouted_inputs),
        ((calls, sequences), _difference_in_learning),
    ):
        explained = failed.keys() & {check.name for module in modules for check in module.CHECKS}
        try:
            cause = experiment(ctx) if explained else None
        except (Exception, SystemExit) as error:
            if raised_by_auditor(error) and not isinstance(error, NotOfferedError | UnusableError):
                raise
            cause = None  # the policy raised it, which its checks report
        if cause:
            return [_explained(f, cause) if f.check.name in explained else f for f in findings]
    return [*findings]


def _explained(finding: Finding, cause: Cause) -> Finding:
    where = f"in {', '.join(cause.forms)}, " if cause.forms else ""
    evidence, check = f"{where}{cause.what}. {finding.evidence}", replace(finding.check, fix=cause.fix)
    return replace(finding, evidence=evidence, check=check, cause=cause.what)


@torch.no_grad()
def _misrouted_flags(ctx: Context) -> Cause | None:
    """Set the flag of each step and slot in turn, and find which flags the policy uses in their place."""

    def of_form(form: str) -> Cause | None:
        kinds = ("terminated", "truncated") if form == ACT else ("",)
        causes = {_match(_map_of_flags(ctx, form, kind), FLAG_ROUTES) for kind in kinds}
        return causes.pop() if len(causes) == 1 else None  # else it is about how episodes end

    script = ctx.script(T=4, B=3)
    other = replace(script, start=ctx.random_state(3))
    return _by_form([form for form in ctx.forms if (ctx.compare(form, script, other) > SAME).any()], of_form)


def _map_of_flags(ctx: Context, form: str, ended_by: str) -> Tensor:
    """Return a tensor [t, b, t', b']: how far the output at (t', b') moves when the flag at (t, b) is set."""
    script = replace(ctx.script(T=4, B=3), ended_by=ended_by)
    usual, size = ctx.run(form, script), torch.zeros(4, 3, 4, 3, dtype=torch.float64)
    for t, b in product(range(4), range(3)):
        first = script.first.clone()
        first[t, b] = True
        size[t, b] = differences(usual.outputs, ctx.run(form, replace(script, first=first), usual.actions).outputs)
    return size


def _misrouted_inputs(ctx: Context) -> Cause | None:
    """Find which observations a step uses in place of its own."""
    return _by_form(ctx.forms, lambda form: _match(ctx.changes(form).size[1:], INPUT_ROUTES))


def _by_form(forms: Iterable[str], find: Callable[[str], Cause | None]) -> Cause | None:
    """Return the cause of the first form that has one, with all forms that share it."""
    found = {form: cause for form in forms if (cause := find(form))}
    return next((it._replace(forms=tuple(form for form in found if found[form] == it)) for it in found.values()), None)


def _match(size: Tensor, routes: Iterable[tuple[str, str, Route]]) -> Cause | None:
    """Return the cause whose route predicts, for each input (t, b), when the outputs of each slot first move."""
    T, B = size.shape[:2]
    blank = torch.zeros(T, B, dtype=torch.bool)
    inputs = torch.eye(T * B, dtype=torch.bool).view(T * B, T, B)
    for what, fix, route in routes:
        moved = torch.stack([route(x) != route(blank) for x in inputs]).view(T, B, T, B)
        if torch.equal(_onsets(size > SAME), _onsets(moved)):
            return Cause(what, fix)
    return None


def _onsets(moved: Tensor) -> Tensor:
    """[T, B, T, B] -> [T, B, B]: the first step at which a slot moved, or T if it never did."""
    return torch.where(moved.any(2), moved.int().argmax(2), moved.shape[2])


@torch.no_grad()
def _difference_in_learning(ctx: Context) -> Cause | None:
    """Compare single steps with a sequence, within an episode, output by output."""
    script = ctx.script()
    stepped = ctx.run(STEP, script)
    whole = ctx.run(SEQUENCE, script, stepped.actions).outputs
    shared = [name for name in stepped.outputs if name in whole and name != ACTIONS]
    sizes = {name: differences(stepped.outputs, whole, (name,)) for name in shared}
    limit = ctx.replay_limit(script, stepped.actions)
    different = {name for name in shared if sizes[name].max() > limit}
    if different == {"log_prob"}:
        return ONLY_LOG_PROBS
    if different and "value" in shared and different <= {"log_prob", "full_log_probs", "logits", "entropy"}:
        return ONLY_ACTOR
    if different == {"value"} != set(shared):
        return ONLY_CRITIC
    apart = torch.stack([*sizes.values()]).amax(0)
    most = float(apart.max())  # rounding is small, and it is everywhere
    return CAST if different and most < HALF_PRECISION and apart.median() > most / 30 else None
