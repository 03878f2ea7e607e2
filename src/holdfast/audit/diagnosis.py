"""Find the cause of failed checks.

One bug fails many checks, and the advice of each check has to cover many bugs. So after failures, a few more
experiments are run. If they find a cause, its fix replaces the advice of the checks that it explains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TypeVar

from holdfast.audit.cause import Cause
from holdfast.audit.checks import calls, episodes, memory_use, sequences, slots, stored_memory
from holdfast.audit.context import Context
from holdfast.audit.experiments import (
    difference_in_learning,
    differs_when_repeated,
    learning_starts_late,
    memory_changed_by_storing,
    partly_reset,
    scored_actions_enter,
    stale_weights,
)
from holdfast.audit.findings import Finding, Verdict
from holdfast.audit.misrouting import misrouted_flags, misrouted_inputs
from holdfast.audit.subject import NotOfferedError, UnusableError, raised_by_auditor

Experiment = Callable[[Context], Cause | None]
Result = TypeVar("Result")
# In this order. Each experiment runs if one of these checks failed, and explains those that did; none runs if one of
# the last column failed, which then says more.
EXPERIMENTS: list[tuple[tuple[ModuleType | str, ...], Experiment, tuple[str, ...]]] = [
    ((episodes, sequences, memory_use), misrouted_flags, ()),
    (("reset_clears_whole_state",), partly_reset, ()),
    ((slots, sequences), misrouted_inputs, ()),
    (("updated_weights_are_used",), stale_weights, ("memory_is_used",)),
    ((sequences, calls, stored_memory), memory_changed_by_storing, ("memory_is_used", "memory_round_trips")),
    ((sequences, calls), scored_actions_enter, ("outputs_are_causal", "slots_are_independent")),
    (("replay_from_stored_state",), learning_starts_late, ()),
    ((sequences, calls), difference_in_learning, ("outputs_are_causal", "slots_are_independent")),
]


def diagnose(ctx: Context, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, with the cause and its fix in those that it explains."""
    failed = {f.check.name: f.check.root for f in findings if f.verdict == Verdict.FAIL and not f.cause}
    if not failed or 2 in failed.values():  # equal calls may not give equal outputs, so experiments would mislead
        return [*findings]
    if found := _attempt(differs_when_repeated, ctx):
        return [_fail(ctx, f, *found) if f.check.name == "calls_are_repeatable" else f for f in findings]
    for about, experiment, unless in EXPERIMENTS:
        explained = failed.keys() & _names(about)
        cause = _attempt(experiment, ctx) if explained and not failed.keys() & {*unless} else None
        if cause:
            return [_explained(ctx, f, cause) if f.check.name in explained else f for f in findings]
    return [*findings]


def _names(about: Sequence[ModuleType | str]) -> set[str]:
    """Return the names of these checks; a module stands for all of its checks."""
    return {name for it in about for name in ([it] if isinstance(it, str) else [check.name for check in it.CHECKS])}


def _attempt(experiment: Callable[[Context], Result], ctx: Context) -> Result | None:
    """Run an experiment. An error that the policy raises is no result; its checks report it."""
    try:
        return experiment(ctx)
    except (Exception, SystemExit) as error:
        if raised_by_auditor(error) and not isinstance(error, NotOfferedError | UnusableError):
            raise
        return None


def _explained(ctx: Context, finding: Finding, cause: Cause) -> Finding:
    evidence, check = f"{cause.describe()}. {finding.evidence}", replace(finding.check, fix=cause.fix)
    where = ctx.subject.where(cause.forms[0]) if len(cause.forms) == 1 else finding.where
    return replace(finding, evidence=evidence, check=check, cause=cause.what, where=where)


def _fail(ctx: Context, finding: Finding, form: str, evidence: str) -> Finding:
    """Return the finding of a check that passed, with what an experiment measured against its promise."""
    where, shares = ctx.subject.where(form), {form: 1.0}
    return replace(finding, verdict=Verdict.FAIL, evidence=evidence, call=form, failed_shares=shares, where=where)
