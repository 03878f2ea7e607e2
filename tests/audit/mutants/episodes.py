"""Bugs in resets at episode starts."""

from __future__ import annotations

import torch
from torch import Tensor

from audit.mutants.families import PlainPolicy
from audit.mutants.reference_policy import HIDDEN, LAYERS, ReferencePolicy
from audit.mutants.register import caught_by
from holdfast.audit.subject import Outputs, State


@caught_by("reset_inside_sequence", "PufferLib 3.0 and 4.0")
class NeverResets(ReferencePolicy):
    """Memory is never reset."""

    def reset(self, state: State, first: Tensor) -> State:
        return state


@caught_by("reset_inside_sequence", "Metta since November 2025")
class LearningIgnoresResets(ReferencePolicy):
    """Acting resets; learning resets only at the first step of a sequence."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        opening = torch.zeros_like(first)
        opening[0] = first[0]
        return super().sequence(obs, state, opening, actions)


@caught_by("reset_at_first_step")
class IgnoresFirstFlag(ReferencePolicy):
    """Learning ignores the flag of the first step of a sequence."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        inside = first.clone()
        inside[0] = 0
        return super().sequence(obs, state, inside, actions)


@caught_by("reset_at_last_step")
class IgnoresLastFlag(ReferencePolicy):
    """Learning ignores the flag of the last step of a sequence (range(T - 1))."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        inside = first.clone()
        if len(first) > 1:
            inside[-1] = 0
        return super().sequence(obs, state, inside, actions)


@caught_by("reset_on_consecutive_steps")
class ResetsOnRisingFlag(ReferencePolicy):
    """Learning resets where the flag changes from 0 to 1, so the second of two consecutive episode starts is missed."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        before = torch.cat([torch.zeros_like(first[:1]), first[:-1]])
        return super().sequence(obs, state, (first != 0) & (before == 0), actions)


@caught_by("reset_inside_sequence")
class ResetsOneStepLate(ReferencePolicy):
    """Learning applies each flag one step late, so the old memory enters the new episode."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        late = torch.cat([torch.zeros_like(first[:1]), first[:-1]])
        return super().sequence(obs, state, late, actions)


@caught_by("reset_inside_sequence")
class ResetsOneStepEarly(ReferencePolicy):
    """Learning applies each flag one step early, so memory is cleared before the last step of an episode."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        early = torch.cat([first[1:], torch.zeros_like(first[:1])])
        return super().sequence(obs, state, early, actions)


@caught_by("reset_clears_whole_state")
class ResetsOnlyH(ReferencePolicy):
    """A reset clears one tensor of the state (h or c) and not the other."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, first)[0], state[1]


@caught_by("reset_clears_whole_state", needs="layers_are_not_mixed")
class ResetsTopLayerOnly(ReferencePolicy):
    """A reset clears one layer and not the others."""

    def reset(self, state: State, first: Tensor) -> State:
        cleared = super().reset(state, first)
        return tuple(torch.cat([leaf[:-1], new[-1:]]) for leaf, new in zip(state, cleared, strict=True))


@caught_by("reset_inside_sequence")
class DecaysInsteadOfResetting(ReferencePolicy):
    """A reset multiplies the state by 0.1 instead of 0."""

    def reset(self, state: State, first: Tensor) -> State:
        fading = 1.0 - 0.9 * (first != 0).float()[None, :, None]
        return tuple(leaf * fading for leaf in state)


@caught_by("integer_flags", "IsaacLab #888")
class FlagsAsIndices(ReferencePolicy):
    """Flags are used as an index: integer flags select slots 0 and 1."""

    def reset(self, state: State, first: Tensor) -> State:
        cleared = tuple(leaf.clone() for leaf in state)
        for leaf in cleared:
            leaf[:, first if first.dtype == torch.bool else first.long()] = 0.0
        return cleared


@caught_by("integer_flags")
class InvertsIntegerFlags(ReferencePolicy):
    """~first is computed on integers: ~0 is -1, and ~1 is -2."""

    def reset(self, state: State, first: Tensor) -> State:
        kept = ~first if not first.is_floating_point() else 1 - first
        return tuple(leaf * kept[None, :, None] for leaf in state)


@caught_by("reset_with_one_slot")
class SqueezesSingleSlot(ReferencePolicy):
    """If there is only one slot, squeeze() removes its axis, and the reset is lost."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, first) if first.squeeze().dim() else state


@caught_by("reset_only_ended_slots")
class ResetsAllSlots(ReferencePolicy):
    """The end of one episode resets every slot."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, (first != 0).any().expand(len(first)))


@caught_by("reset_on_terminated")
class IgnoresTermination(ReferencePolicy):
    """Memory is reset on truncated only, not on terminated."""

    def ended(self, terminated: Tensor, truncated: Tensor) -> Tensor:
        return truncated != 0


@caught_by("reset_on_truncated", "skrl's recurrent example")
class IgnoresTruncation(ReferencePolicy):
    """Memory is reset on terminated only, not on truncated."""

    def ended(self, terminated: Tensor, truncated: Tensor) -> Tensor:
        return terminated != 0


@caught_by("reset_on_truncated")
class ActingIgnoresTruncation(ReferencePolicy):
    """Acting resets on terminated only; learning resets on both."""

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        return super().act(obs, terminated, torch.zeros_like(truncated), slots)


@caught_by("reset_on_truncated")
class ScoringIgnoresTruncation(ReferencePolicy):
    """Learning resets on terminated only; acting resets on both."""

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        return super().score(obs, terminated, torch.zeros_like(truncated), state, actions)


@caught_by("gradients_stop_at_reset")
class ResetKeepsGradient(ReferencePolicy):
    """A reset subtracts a detached copy of the state, so gradients cross it."""

    def reset(self, state: State, first: Tensor) -> State:
        ended = (first != 0)[None, :, None]
        return tuple(torch.where(ended, leaf - leaf.detach(), leaf) for leaf in state)


@caught_by("reset_equals_initial_state")
class ResetIgnoresInitialState(ReferencePolicy):
    """The initial state is not zero, but resets write zeros."""

    def initial_state(self, B: int) -> State:
        return tuple(torch.full((LAYERS, B, HIDDEN), 0.3) for _ in range(2))


@caught_by("terminated_equals_truncated")
class TruncationResetsAllSlots(ReferencePolicy):
    """Truncation of one episode resets every slot."""

    def ended(self, terminated: Tensor, truncated: Tensor) -> Tensor:
        return (terminated != 0) | (truncated != 0).any(-1, keepdim=True)


@caught_by("terminated_equals_truncated")
class XorsBothFlags(ReferencePolicy):
    """Resets use terminated ^ truncated, so an episode with both flags is not reset."""

    def ended(self, terminated: Tensor, truncated: Tensor) -> Tensor:
        return (terminated != 0) ^ (truncated != 0)


@caught_by("reset_equals_initial_state")
class HighSlotsAreNotReset(ReferencePolicy):
    """Slots 10 and above are never reset."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, torch.where(torch.arange(len(first)) < 10, first, torch.zeros_like(first)))


@caught_by("reset_equals_initial_state", explained="after an episode of 64 steps.*however long")
class ForgetsResetsAfterLongEpisodes(PlainPolicy):
    """The state counts the steps of the episode, and the flag is ignored after 30 of them."""

    no_gradient = (1,)

    def initial_state(self, B: int) -> State:
        return *super().initial_state(B), torch.zeros(B, 1)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        first = (first != 0) & (state[1][:, 0] < 30)
        outputs, (h,) = super().step(obs, state[:1], first)
        return outputs, (h, self.reset(state[1], first) + 1)

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        steps = []
        for x, now in zip(obs, first, strict=True):
            outputs, state = self.step(x, state, now)
            steps.append(outputs)
        return {name: torch.stack([step[name] for step in steps]) for name in steps[0]}, state
