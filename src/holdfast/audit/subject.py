"""Subject: a recurrent policy as the auditor sees it. Writing an adapter means filling in three methods of it."""

from __future__ import annotations

import inspect
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.errors import short_path

State = tuple[Tensor, ...]
Outputs = dict[str, Tensor]  # by name: [B, ...] from one step, [T, B, ...] from a sequence
ACTIONS = "actions"  # the one output that is handed back to `sequence`, and is not compared

# Ways to differ from the usual on purpose. Declared, they are reported as declared; otherwise they are failures.
DEVIATIONS = {
    "lifetime_memory": "memory is kept across episodes on purpose",
    "zero_start_states": "learning starts every sequence from a blank memory on purpose",
    "learning_without_resets": "learning runs through episode ends on purpose",
    "truncated_gradients": "gradients reach back only part of a sequence on purpose",
    "memoryless": "the policy has no memory on purpose",
    "boolean_flags": "flags are boolean wherever the policy is called",
}
# Those under which memory reaches over the end of an episode.
ACROSS_EPISODES = ("lifetime_memory", "learning_without_resets")


def copied(state: State) -> State:
    """The same numbers in tensors of their own. Gradients reach those they were copied from."""
    return tuple(leaf.clone() for leaf in state)


class NotOfferedError(Exception):
    """A subject cannot do this. The text says why, and is what the report shows instead of a verdict."""


class Subject:
    """A policy with its state as a value: what `step` is given, and what it hands back.

    Fill in `observations`, `initial_state` and `step`. A policy that learns from whole sequences with other code than it
    acts with also has `sequence`. Set `module` to what holds the weights. State is a tuple of tensors with the slots on
    axis `slot_axis`. Everything below `sequence` is for policies that keep their memory themselves; where it is not
    filled in, the checks that need it say so.
    """

    name = "policy"
    module: nn.Module | None = None
    slot_axis = 1  # [layers, slots, hidden]
    layered = True  # with slots on axis 1, axis 0 is layers; False for a window of steps and its like
    # numbers of tensors of the state that only select (masks), so by which no gradient flows
    no_gradient: tuple[int, ...] = ()
    declared: frozenset[str] = frozenset()
    flags_are_cast = ""  # why the policy gets flags of one kind only, if an adapter sees to that
    hint = ""  # what to say besides, if it cannot be run

    # ------------------------------------------------------------------------------------------- for everyone

    def observations(self, N: int, generator: torch.Generator) -> Tensor:
        """N different observations [N, ...], such as the policy will meet."""
        raise NotImplementedError("observations is not filled in")

    def initial_state(self, B: int) -> State:
        """The blank state of B slots."""
        raise NotImplementedError("initial_state is not filled in")

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        """Observations [B, ...] -> outputs [B, ...] and the next state. first [B]: this one opens an episode.

        Drawn actions are put out as `actions` and their log-probs as `log_prob`; `value`, `entropy` and `full_log_probs`
        (of every choice) are known by name, too. Any other name is compared as it is.
        """
        raise NotImplementedError("step is not filled in")

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        """The same for [T, B, ...], as learning does it; actions [T, B, ...] are those that stepping gave, if it did.

        () as state: it hands none back.
        """
        raise NotOfferedError("it has no form for sequences of its own: learning takes the same steps as acting")

    def value(self, obs: Tensor, state: State, first: Tensor) -> Outputs:
        """{"value": [B]} as a bootstrap computes it from a state, where that is other code than `step` (CleanRL's get_value)."""
        raise NotOfferedError("it has no call that only looks")

    # ------------------------------------------------------------------ for policies that keep memory themselves

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        """One step of these slots [B], from the memory the policy keeps and into it."""
        raise NotOfferedError("the caller keeps its state")

    def look(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        """The value of these observations, as a bootstrap needs it: from memory, and leaving it as it is."""
        raise NotOfferedError("it has no call that only looks")

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        """`sequence` with the two kinds of episode end told apart."""
        raise NotOfferedError("it is told that an episode begins, not how the last one ended")

    def get_memory(self) -> State:
        """A copy of what is kept of every slot, as `initial_state` has it: slots on axis `slot_axis`."""
        raise NotOfferedError("it has no get_memory")

    def set_memory(self, memory: State) -> None:
        """Takes over a copy of a state as `get_memory` gives it. The number of slots may differ from call to call."""
        raise NotOfferedError("it has no set_memory")

    def reset_memory(self) -> None:
        """Makes the memory of every slot blank: acting goes on as from `initial_state`."""
        raise NotOfferedError("it has no reset_memory")

    def reset_slots(self, slots: Tensor) -> None:
        """Makes the memory of these slots [n] blank (whole numbers, each below the number of slots), and of no other."""
        raise NotOfferedError("it has no reset_slots")

    def rebuild(self) -> Subject:
        """The same policy made anew, with other weights, to load a checkpoint into."""
        raise NotOfferedError("it is not said how to make another one of it")

    # ---------------------------------------------------------------------------------------------- where to look

    def where(self, method: str) -> str:
        """file:line of the code behind one of these methods, for the report; '' if it cannot be found."""
        code = getattr(type(self), method, None)
        return "" if code is getattr(Subject, method, None) else source_of(code)


def source_of(code: object) -> str:
    """file:line of a function or class, short enough for a table; '' if there is no source."""
    try:
        path = inspect.getsourcefile(code)  # type: ignore[arg-type]
        _, line = inspect.getsourcelines(code)  # type: ignore[arg-type]
    except (TypeError, OSError):
        return ""
    if path is None:
        return ""
    return f"{short_path(Path(path))}:{line}"
