"""Scripts: what a subject is shown, and the ways to show it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from holdfast.audit.subject import Outputs, State, copied

STEPPING, SEQUENCE, ACTING = "stepping", "sequence", "acting"  # pure steps | one call for all steps | from kept memory
SCORING = "scoring"  # a sequence that is told how episodes ended
VALUE, LOOKING = "value", "looking"  # the value of an observation: from a state | from kept memory
METHODS = {  # of a subject, by the call that runs it
    STEPPING: "step",
    SEQUENCE: "sequence",
    ACTING: "act",
    SCORING: "score",
    VALUE: "value",
    LOOKING: "look",
}
T, B = 6, 4
LONG = 70  # steps, more than the chunks and windows people cut memory into
TOO_WILD = 0.1  # where rounding grows to this, nothing can be said about a long sequence
MANY = 12  # slots, more than tables and batches that are too small have room for
# Episodes that begin inside, twice in a row, twice with a step between, at the first step and at the last.
AWKWARD_ENDS: dict[int, list[int]] = {0: [2], 1: [1, 2], 2: [1, 3], 3: [0, 5]}


@dataclass(frozen=True)
class Script:
    """T steps of B slots: what they see, where episodes begin, the state they start from."""

    obs: Tensor  # [T, B, ...]
    first: Tensor  # [T, B] bool
    start: State
    ended_by: str = ""  # terminated, truncated or both, for forms that can tell

    def with_obs(self, t: int, b: int, obs: Tensor) -> Script:
        changed = self.obs.clone()
        changed[t, b] = obs
        return replace(self, obs=changed)

    def with_first(self, first: Tensor) -> Script:
        return replace(self, first=first)

    def with_start_leaf(self, i: int, leaf: Tensor) -> Script:
        """Tensor i of the start state is this one."""
        return replace(self, start=(*self.start[:i], leaf, *self.start[i + 1 :]))

    def copy(self) -> Script:
        """Tensors of its own. Gradients reach those it was copied from."""
        return replace(self, obs=self.obs.clone(), first=self.first.clone(), start=copied(self.start))


@dataclass(frozen=True)
class Trace:
    """What came out, [T, B, ...] by name, and the state after the last step if the form hands one back."""

    outputs: Outputs
    final: State


def arriving(script: Script, t: int, slots: list[int] | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `act` and `look` are given at step t of a script, of these slots or of all: observations, flags, slots."""
    terminated, truncated = flags(script)
    if slots is None:
        return script.obs[t], terminated[t], truncated[t], torch.arange(script.first.shape[1])
    return script.obs[t, slots], terminated[t, slots], truncated[t, slots], torch.tensor(slots)


def flags(script: Script) -> tuple[Tensor, Tensor]:
    """terminated and truncated [T, B]."""
    first, none = script.first, torch.zeros_like(script.first)
    return {"truncated": (none, first), "both": (first, first)}.get(script.ended_by, (first, none))
