"""Experiments that find steps which use the flag or the observation of another step or slot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from holdfast.audit.cause import Cause, by_form
from holdfast.audit.context import Context
from holdfast.audit.dependence import effects_of_flags
from holdfast.audit.findings import SAME
from holdfast.audit.script import ACT

Route = Callable[[Tensor], Tensor]  # what [T, B] would be right -> what the policy uses in its place


def _later(x: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(x[:1]), x[:-1]])


def _earlier(x: Tensor) -> Tensor:
    return torch.cat([x[1:], torch.zeros_like(x[:1])])


OFF_BY_ONE = "Look for a roll, an offset by one, or a sort of the batch."
RESHAPE = "Bring [B, T] to [T, B] with transpose, not with reshape or view."
BY_SLOT = "Mask the state slot by slot, with first as [1, B, 1]"
STATISTIC = "Look for a statistic over the batch: mean, max, BatchNorm."
OVER_TIME = "Look for a statistic over time (a mean or norm over T), and for bidirectional layers."
# fmt: off
FLAG_ROUTES: list[tuple[str, str, Route]] = [
    ("the flag of a slot resets the next slot", OFF_BY_ONE, lambda x: x.roll(1, 1)),
    ("the flag of a slot resets the slot before it", OFF_BY_ONE, lambda x: x.roll(-1, 1)),
    ("the flags of slot 0 are used for all slots", f"{BY_SLOT}, not by first[:, 0].", lambda x: x[:, :1].expand_as(x)),
    ("the flags of the last slot are used for all", f"{BY_SLOT}, not by first[:, -1].", lambda x: x[:, -1:].expand_as(x)),
    ("a flag of any slot resets all slots", f"{BY_SLOT}, not by first.any().", lambda x: x.any(1, True).expand_as(x)),
    ("flags [T, B] are read as [B, T]", RESHAPE, lambda x: x.reshape(x.shape[::-1]).T),
    ("flags take effect one step late", "Reset before the step that gets the first observation, not after it.", _later),
    ("flags take effect one step early", "Use first[t] with observation t.", _earlier),
    ("flags are used as indices: slot 1 is reset, whichever flag is set", "Convert flags to booleans: state[:, first != 0].",
     lambda x: torch.zeros_like(x).scatter_(1, x.long(), torch.ones_like(x))),
    ("only flags of the first step of a call count", "Reset inside sequences too, at each first[t].", lambda x: x ^ _later(_earlier(x))),
    ("flags of the first step of a call are ignored", "Apply first[0] to the start state.", lambda x: _later(_earlier(x))),
    ("flags of the last step of a call are ignored", "Look for loops over range(T - 1).", lambda x: _earlier(_later(x))),
    ("`first` has no effect", "Reset the state of each slot where its flag is set.", torch.zeros_like),
]
INPUT_ROUTES: list[tuple[str, str, Route]] = [
    ("an observation moves all slots of its step", STATISTIC, lambda x: x.any(1, True).expand_as(x)),
    ("an observation moves all slots and steps", STATISTIC, lambda x: x.any().expand_as(x)),
    ("an observation moves all steps of its slot, earlier ones too", OVER_TIME, lambda x: x.any(0, True).expand_as(x)),
    ("observations [T, B] are read as [B, T]", RESHAPE, lambda x: x.reshape(x.shape[::-1]).T),
    ("the observation of a slot enters the next slot", OFF_BY_ONE, lambda x: x.roll(1, 1)),
    ("the observation of a slot enters the slot before it", OFF_BY_ONE, lambda x: x.roll(-1, 1)),
    ("an observation enters the step before it", "Look for observations shifted by a step.", lambda x: x | _earlier(x)),
]
# fmt: on


@torch.no_grad()
def misrouted_flags(ctx: Context) -> Cause | None:
    """Set the flag of each step and slot in turn, and find which flags the policy uses in their place."""

    def of_form(form: str) -> Cause | None:
        kinds = ("terminated", "truncated") if form == ACT else ("",)
        scripts = [
            replace(ctx.script(T=4, B=3), ended_by=kind) for kind in kinds
        ]  # without flags, so each flip sets one
        causes = {_match(effects_of_flags(ctx, form, each), FLAG_ROUTES) for each in scripts}
        return causes.pop() if len(causes) == 1 else None  # else it is about how episodes end

    script = ctx.script(T=4, B=3)
    other = replace(script, start=ctx.random_state(3))
    return by_form([form for form in ctx.forms if (ctx.compare(form, script, other) > SAME).any()], of_form)


def misrouted_inputs(ctx: Context) -> Cause | None:
    """Find which observations a step uses in place of its own."""
    return by_form(ctx.forms, lambda form: _match(ctx.changes(form).size[1:], INPUT_ROUTES))


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
