"""Scripts: the observations, episode starts and start states that a policy is run on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from holdfast.audit.subject import ACTIONS, Outputs, State, copy_state

# The ways to run a script, each named after the method of `Subject` that it calls.
STEP, SEQUENCE, ACT = "step", "sequence", "act"
SCORE, VALUE, VALUE_FROM_MEMORY = "score", "value", "value_from_memory"
STATE = "state"  # what a check may need besides these calls
CALLS = (STEP, SEQUENCE, ACT, SCORE, VALUE, VALUE_FROM_MEMORY)
T, B = 6, 4
LONG = 70  # steps: more than the usual chunk or window of 8, 16, 32 or 64
CHAOTIC = 0.1  # if rounding errors grow to this, long sequences cannot be compared
MANY = 12  # slots: more than an undersized table or batch has room for
# {slot: steps that start an episode}: inside, consecutive, with a step between, first and last.
AWKWARD_RESETS: dict[int, list[int]] = {0: [2], 1: [1, 2], 2: [1, 3], 3: [0, 5]}
# In LONG steps: slot 0 has an episode of 64 steps, slot 1 shorter ones, and the other eight together reset at every step.
LONG_RESETS = {0: [2, LONG - 4], 1: [1, 2, 17, 33, LONG - 1]} | {2 + b: [*range(b, LONG, 8)] for b in range(8)}


@dataclass(frozen=True)
class Script:
    """The inputs of one run: T steps of B slots."""

    obs: Tensor  # [T, B, ...]
    first: Tensor  # [T, B] bool
    start: State
    ended_by: str = ""  # terminated, truncated or both, for calls that take both flags

    def with_obs(self, t: int, b: int, obs: Tensor) -> Script:
        changed = self.obs.clone()
        changed[t, b] = obs
        return replace(self, obs=changed)

    def with_start_leaf(self, i: int, leaf: Tensor) -> Script:
        """Replace tensor i of the start state."""
        return replace(self, start=(*self.start[:i], leaf, *self.start[i + 1 :]))

    def copy(self) -> Script:
        """Clone every tensor; gradients flow back to the originals."""
        return replace(self, obs=self.obs.clone(), first=self.first.clone(), start=copy_state(self.start))

    @property
    def flags(self) -> tuple[Tensor, Tensor]:
        """terminated and truncated, each [T, B]."""
        first, none = self.first, torch.zeros_like(self.first)
        return {"truncated": (none, first), "both": (first, first)}.get(self.ended_by, (first, none))

    def act_inputs(self, t: int, slots: list[int] | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the arguments of `act` at step t: observations, terminated, truncated, slots (all slots by default)."""
        terminated, truncated = self.flags
        if slots is None:  # views, not copies, so that writing into arguments is noticed
            return self.obs[t], terminated[t], truncated[t], torch.arange(self.first.shape[1])
        return self.obs[t, slots], terminated[t, slots], truncated[t, slots], torch.tensor(slots)


@dataclass(frozen=True)
class Trace:
    """The outputs of a run, [T, B, ...] by name, and its final state (() if the call returns none)."""

    outputs: Outputs
    final: State

    @property
    def actions(self) -> Tensor | None:
        return self.outputs.get(ACTIONS)
