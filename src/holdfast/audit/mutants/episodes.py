"""Episode ends that are missed, late, partial, or everybody's."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.audit.mutants.register import caught_by
from holdfast.audit.mutants.sound import HIDDEN, LAYERS, Sound
from holdfast.audit.subject import Outputs, State


@caught_by("reset_inside", "PufferLib 3.0 and 4.0")
class NeverResets(Sound):
    """No reset anywhere."""

    def reset(self, state: State, first: Tensor) -> State:
        return state


@caught_by("reset_inside", "Metta since November 2025")
class LearningRunsThrough(Sound):
    """Acting resets; learning runs through episode ends."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        opening = torch.zeros_like(first)
        opening[0] = first[0]
        return super().sequence(obs, state, opening, actions)


@caught_by("reset_at_the_first_step")
class ForgetsTheOpeningFlag(Sound):
    """Learning looks at flags from the second step on: the first is thought to be taken care of by the start state."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        inside = first.clone()
        inside[0] = 0
        return super().sequence(obs, state, inside, actions)


@caught_by("reset_at_the_last_step")
class ForgetsTheLastFlag(Sound):
    """Learning looks for episode ends in range(T - 1)."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        inside = first.clone()
        if len(first) > 1:
            inside[-1] = 0
        return super().sequence(obs, state, inside, actions)


@caught_by("reset_twice_in_a_row")
class ResetsOnChange(Sound):
    """Learning resets where the flag goes up, so the second of two episode starts in a row is not seen."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        before = torch.cat([torch.zeros_like(first[:1]), first[:-1]])
        return super().sequence(obs, state, (first != 0) & (before == 0), actions)


@caught_by("reset_inside")
class ResetsOneStepLate(Sound):
    """The flag of a step is used on the next: the terminal observation enters the new episode."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        late = torch.cat([torch.zeros_like(first[:1]), first[:-1]])
        return super().sequence(obs, state, late, actions)


@caught_by("reset_inside")
class ResetsOneStepEarly(Sound):
    """While learning, the flag of a step is used on the one before it: the end of an episode is forgotten too soon."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        early = torch.cat([first[1:], torch.zeros_like(first[:1])])
        return super().sequence(obs, state, early, actions)


@caught_by("every_part_of_the_state_is_reset")
class ResetsOnlyH(Sound):
    """One tensor of the state is cleared, another is not: h and not c, or c and not h."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, first)[0], state[1]


@caught_by("every_part_of_the_state_is_reset", needs="layers_are_in_place")
class ResetsTheTopLayer(Sound):
    """One layer is cleared, others are not."""

    def reset(self, state: State, first: Tensor) -> State:
        cleared = super().reset(state, first)
        return tuple(torch.cat([leaf[:-1], new[-1:]]) for leaf, new in zip(state, cleared, strict=True))


@caught_by("reset_inside")
class FadesInsteadOfResetting(Sound):
    """A reset multiplies the state by 0.1."""

    def reset(self, state: State, first: Tensor) -> State:
        fading = 1.0 - 0.9 * (first != 0).float()[None, :, None]
        return tuple(leaf * fading for leaf in state)


@caught_by("integer_flags", "IsaacLab #888")
class FlagsAsIndices(Sound):
    """Flags are used as an index: integers pick slots 0 and 1."""

    def reset(self, state: State, first: Tensor) -> State:
        cleared = tuple(leaf.clone() for leaf in state)
        for leaf in cleared:
            leaf[:, first if first.dtype == torch.bool else first.long()] = 0.0
        return cleared


@caught_by("integer_flags")
class InvertsIntegers(Sound):
    """~first is taken of integers: ~0 is -1, and ~1 is -2."""

    def reset(self, state: State, first: Tensor) -> State:
        going_on = ~first if not first.is_floating_point() else 1 - first
        return tuple(leaf * going_on[None, :, None] for leaf in state)


@caught_by("reset_with_one_slot")
class SqueezesOneSlot(Sound):
    """squeeze() takes the slot axis away when there is one slot, and the mask is lost."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, first) if first.squeeze().dim() else state


@caught_by("only_the_ended_are_reset")
class ResetsEverybody(Sound):
    """One episode's end clears the memory of all."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, (first != 0).any().expand(len(first)))


@caught_by("reset_on_terminated")
class IgnoresTermination(Sound):
    """Only truncation ends an episode."""

    def ended(self, terminated: Tensor, truncated: Tensor) -> Tensor:
        return truncated != 0


@caught_by("reset_on_truncated", "skrl's recurrent example")
class IgnoresTruncation(Sound):
    """Only termination ends an episode."""

    def ended(self, terminated: Tensor, truncated: Tensor) -> Tensor:
        return terminated != 0


@caught_by("reset_on_truncated")
class ActsPastTruncation(Sound):
    """Acting resets on terminated only; learning on both."""

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        return super().act(obs, terminated, torch.zeros_like(truncated), slots)


@caught_by("reset_on_truncated")
class ScoresPastTruncation(Sound):
    """Learning resets on terminated only; acting on both."""

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        return super().score(obs, terminated, torch.zeros_like(truncated), state, actions)


@caught_by("gradients_stop_at_a_reset")
class ResetsValuesOnly(Sound):
    """The state is cleared by subtracting a detached copy: gradients go through."""

    def reset(self, state: State, first: Tensor) -> State:
        ended = (first != 0)[None, :, None]
        return tuple(torch.where(ended, leaf - leaf.detach(), leaf) for leaf in state)


@caught_by("a_reset_is_a_blank_start")
class ResetsToZeros(Sound):
    """The blank state is not zero, and resets write zeros."""

    def initial_state(self, B: int) -> State:
        return tuple(torch.full((LAYERS, B, HIDDEN), 0.3) for _ in range(2))


@caught_by("how_an_episode_ended_makes_no_difference")
class TruncationClearsAll(Sound):
    """A time limit that one episode reaches clears the memory of all."""

    def ended(self, terminated: Tensor, truncated: Tensor) -> Tensor:
        return (terminated != 0) | (truncated != 0).any(-1, keepdim=True)


@caught_by("how_an_episode_ended_makes_no_difference")
class BothFlagsCancel(Sound):
    """terminated ^ truncated: an episode that ends at its time limit for good is not reset."""

    def ended(self, terminated: Tensor, truncated: Tensor) -> Tensor:
        return (terminated != 0) ^ (truncated != 0)


@caught_by("a_reset_is_a_blank_start")
class LateSlotsAreNotReset(Sound):
    """Slots from the eleventh on are never reset."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, torch.where(torch.arange(len(first)) < 10, first, torch.zeros_like(first)))
