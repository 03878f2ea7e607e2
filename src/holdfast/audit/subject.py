"""Subject: the interface between the auditor and a recurrent policy. Adapters implement three or more methods."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.errors import SettingsError, short_path

State = tuple[Tensor, ...]
Outputs = dict[str, Tensor]  # by name: [B, ...] from one step, [T, B, ...] from a sequence
ACTIONS = "actions"  # the one output that is passed back to `sequence`, and is not compared

# Intended deviations. A failure that one of them explains is reported as declared.
DEVIATIONS = {
    "lifetime_memory": "memory is kept across episodes by design",
    "zero_start_states": "learning starts every sequence from zeros by design",
    "learning_without_resets": "by design, learning does not reset at episode ends",
    "truncated_gradients": "gradients are cut inside a sequence by design",
    "memoryless": "the policy has no memory by design",
    "boolean_flags": "callers always pass boolean flags",
}
# Deviations that let memory cross the end of an episode.
ACROSS_EPISODES = ("lifetime_memory", "learning_without_resets")


def copy_state(state: State) -> State:
    """Clone every tensor; gradients flow back to the originals."""
    return tuple(leaf.clone() for leaf in state)


class NotOfferedError(Exception):
    """The subject does not support this call. The report shows the message as the reason for "not run"."""


class UnusableError(SettingsError):
    """The subject cannot be audited: it raises, or returns something of the wrong type or shape."""

    cost = "Training or evaluation fails where it makes the same call, or broadcasts wrong shapes silently."
    advice = (
        "Return the same names, types and shapes from every call, for any number of steps and slots. squeeze() without "
        "an axis drops too many axes if there is only one slot or one step."
    )


class PolicyRaisedError(UnusableError):
    """The policy raised an error. The message comes from an adapter and lists the arguments of the call."""

    cost = "Training or evaluation stops where it makes the same call."
    advice = (
        "Fix this error first: the promise could not be tested. If it occurs only with one slot or one step, look for "
        "squeeze() without an axis; if with more slots than before, for sizes that are fixed when the policy is created."
    )


class NotANumberError(UnusableError):
    """The policy returned NaN."""

    cost = "NaN spreads through memory, losses and weights."
    advice = (
        "Look for a division by zero, the logarithm or square root of a number below zero, and infinity minus infinity. "
        "If it begins after many steps, memory grows without bound."
    )


class Subject:
    """A policy to audit. Its state is an argument and a result of each call.

    Implement `observations`, `initial_state` and `step`. Implement `sequence` too if learning runs other code than
    acting. Set `module` to the network, so that its weights can be checked. State is a flat tuple of tensors with the
    slots on axis `slot_axis`. Most methods after `value` are for policies that keep their own memory. Checks that need
    a missing method are reported as not run.
    """

    name = "policy"
    module: nn.Module | None = None
    slot_axis = 1  # [layers, slots, hidden]
    layered = True  # with slot_axis 1: axis 0 is layers. Set to False if it is something else, such as time
    # Indices of state tensors that only select or count (masks, counters) and so need no gradient.
    no_gradient: tuple[int, ...] = ()
    declared: frozenset[str] = frozenset()
    # Set passes_rewards if the policy gets rewards. Unless last_reward is None, use it as the reward that arrives with
    # the first observation of each episode.
    passes_rewards = False
    last_reward: float | None = None
    fixed_flag_dtype = ""  # why flags of other types cannot be passed; if set, integer_flags is not run
    hint = ""  # added to the error message if the policy cannot be run

    def observations(self, N: int, generator: torch.Generator) -> Tensor:
        """Return N different observations [N, ...] of the kind the policy is trained on."""
        raise NotImplementedError("observations is not implemented")

    def initial_state(self, B: int) -> State:
        """Return the state of B slots at the start of an episode."""
        raise NotImplementedError("initial_state is not implemented")

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        """Run one step: obs [B, ...] -> outputs [B, ...] and the next state. first [B]: obs starts an episode.

        Return sampled actions as `actions` and their log-probs as `log_prob`. The outputs `value`, `entropy` and
        `full_log_probs` (log-probs of every choice) have checks of their own; all others are only compared as numbers.
        """
        raise NotImplementedError("step is not implemented")

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        """Run obs [T, B, ...] as learning does, and score actions [T, B, ...] (None if `step` samples none).

        Return () as the state if learning returns none.
        """
        raise NotOfferedError("no sequence() provided, so learning is assumed to run the same steps as acting")

    def value(self, obs: Tensor, state: State, first: Tensor) -> Outputs:
        """Return the bootstrap value as {"value": [B]}, if other code than `step` computes it (CleanRL's get_value)."""
        raise NotOfferedError("no value() provided")

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        """Run one step of these slots [B], reading and updating the policy's own memory."""
        raise NotOfferedError("no act() provided, so the policy is assumed to keep no memory of its own")

    def value_from_memory(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        """Return the bootstrap value as {"value": [B]}, computed from the policy's own memory without changing it."""
        raise NotOfferedError("no value_from_memory() provided")

    def score(
        self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor | None
    ) -> Outputs:
        """Run `sequence` with terminated and truncated as separate flags."""
        raise NotOfferedError("no score(), which takes terminated and truncated flags, provided")

    def get_memory(self) -> State:
        """Return a copy of the memory of every slot, in the layout of `initial_state`."""
        raise NotOfferedError("no get_memory() provided")

    def set_memory(self, memory: State) -> None:
        """Replace the policy's memory with a copy of `memory`, which may have another number of slots."""
        raise NotOfferedError("no set_memory() provided")

    def reset_memory(self) -> None:
        """Set every slot back to `initial_state`."""
        raise NotOfferedError("no reset_memory() provided")

    def reset_slots(self, slots: Tensor) -> None:
        """Set these slots [n] (integers) back to `initial_state`, and no others."""
        raise NotOfferedError("no reset_slots() provided")

    def rebuild(self) -> Subject:
        """Return a new policy of the same kind with other weights, to load a checkpoint into."""
        raise NotOfferedError("no rebuild() provided")

    def state_name(self, i: int) -> str:
        """Return a name of tensor i of the state for the report."""
        return f"tensor {i} of the state"

    def where(self, method: str) -> str:
        """Return file:line of the code behind a method, for the report; '' if unknown."""
        code = getattr(type(self), method, None)
        return "" if code is getattr(Subject, method, None) else source_location(code)


def source_location(code: object) -> str:
    """Return file:line of a function or class; '' if its source is not available."""
    try:
        path = inspect.getsourcefile(code)  # type: ignore[arg-type]
        _, line = inspect.getsourcelines(code)  # type: ignore[arg-type]
    except (TypeError, OSError):
        return ""
    return "" if path is None else f"{short_path(Path(path))}:{line}"


def raised_by_auditor(error: BaseException) -> bool:
    """Whether the auditor itself, not an adapter, raised this error, so that it says nothing about the policy."""
    last = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    return last.is_relative_to(Path(__file__).parent) and last.parent.name != "adapters"
