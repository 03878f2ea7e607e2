"""Bugs between acting step by step and learning from sequences."""

from __future__ import annotations

import torch
from torch import Tensor

from audit.mutants.reference_policy import ReferencePolicy
from audit.mutants.register import caught_by
from holdfast.audit.subject import ACTIONS, Outputs, State


@caught_by("memory_is_used", "SB3 predict; torchrl #1406")
class ClearsEveryStep(ReferencePolicy):
    """The state is cleared at every step."""

    def reset(self, state: State, first: Tensor) -> State:
        return tuple(torch.zeros_like(leaf) for leaf in state)


@caught_by("memory_is_used")
class InvertsMask(ReferencePolicy):
    """The state is multiplied by done instead of 1 - done: kept at episode starts, cleared everywhere else."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, first == 0)


@caught_by("memory_is_used", "SB3 predict; torchrl #1406")
class ActingHasNoMemory(ReferencePolicy):
    """Acting starts every step from the initial state; learning has memory."""

    def recall(self, slots: Tensor) -> State:
        super().recall(slots)  # makes room for them
        return self.initial_state(len(slots))


@caught_by("first_observations_are_remembered", "rl_games #362, CleanRL's pqn with envpool")
class ResetsAfterStep(ReferencePolicy):
    """The reset comes after the step instead of before it: the old memory is used, and the first observation is lost."""

    def advance(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        y, state = self.cell(x, state)
        return y, self.reset(state, first)


@caught_by("every_observation_is_used", "the first version of MettaGrid's trainer; PufferLib's reset")
class MissesFirstObservations(ReferencePolicy):
    """At episode starts the observation is zeroed together with the memory."""

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        return super().step(obs * (first == 0).float()[:, None], state, first)


@caught_by("outputs_are_causal")
class LooksAhead(ReferencePolicy):
    """In learning, observations are averaged with those of the next step."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        ahead = torch.cat([obs[1:], obs[-1:]])
        return super().sequence((obs + ahead) / 2, state, first, actions)


@caught_by("steps_equal_sequence", "cleanrl #83; recurrent-ppo-truncated-bptt")
class MixesTimeAndSlots(ReferencePolicy):
    """A reshape mixes up [T, B] and [B, T]."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        T, B = first.shape
        mixed = obs.reshape(B, T, -1).transpose(0, 1)
        return super().sequence(mixed, state, first, actions)


@caught_by("steps_equal_sequence_across_resets", "PufferLib's LSTMWrapper, MettaGrid's own LSTM policy")
class ResetsOnlyWhileActing(ReferencePolicy):
    """Acting resets; learning ignores the flags."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return super().sequence(obs, state, torch.zeros_like(first), actions)


@caught_by("steps_equal_sequence_across_resets")
class ResetsOnlyWhileLearning(ReferencePolicy):
    """Learning resets; acting never does."""

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        return super().step(obs, state, torch.zeros_like(first))


@caught_by("steps_equal_sequence")
class ChunksStartFromZeros(ReferencePolicy):
    """Learning splits sequences into chunks of 16 steps and starts each from the initial state."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        parts, after = [], state
        for chunk in zip(*(x.split(16) for x in (obs, first, actions)), strict=True):
            outputs, after = super().sequence(chunk[0], state, *chunk[1:])
            parts.append(outputs)
            state = self.initial_state(obs.shape[1])
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, after


@caught_by("score_equals_sequence")
class ScoresFromZeros(ReferencePolicy):
    """Scoring ignores its start state and uses zeros."""

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        return super().score(obs, terminated, truncated, self.initial_state(obs.shape[1]), actions)


@caught_by("score_equals_sequence")
class ScoresWithoutGradients(ReferencePolicy):
    """Scoring detaches the start state."""

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        return super().score(obs, terminated, truncated, tuple(leaf.detach() for leaf in state), actions)


@caught_by("final_state_is_correct", "torchrl #3711")
class ReturnsWrongFinalState(ReferencePolicy):
    """A sequence returns the state before its last step as the final state."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        outputs, final = super().sequence(obs, state, first, actions)
        if len(obs) > 1:
            final = super().sequence(obs[:-1], state, first[:-1], None if actions is None else actions[:-1])[1]
        return outputs, final


@caught_by("start_state_is_used", "tianshou #486")
class StartsFromZeros(ReferencePolicy):
    """Learning ignores the start state and starts every sequence from zeros."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return super().sequence(obs, self.initial_state(obs.shape[1]), first, actions)


@caught_by("replay_from_stored_state", "ml-agents #4941")
class StartsOneStepLate(ReferencePolicy):
    """Learning starts a sequence from the memory after its first step instead of before it."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        _, late = super().sequence(obs[:1], state, first[:1], None if actions is None else actions[:1])
        return super().sequence(obs, late, first, actions)


@caught_by("replay_from_stored_state")
class RecordsStaleMemory(ReferencePolicy):
    """get_memory returns the memory from before the last step."""

    def store(self, state: State, slots: Tensor) -> None:
        self.before = super().get_memory()
        super().store(state, slots)

    def set_memory(self, memory: State) -> None:
        super().set_memory(memory)
        self.before = super().get_memory()

    def get_memory(self) -> State:
        return tuple(leaf.clone() for leaf in self.before)


@caught_by("steps_equal_sequence_across_resets")
class IgnoresFlagsAfterStep16(ReferencePolicy):
    """Learning ignores the flags after its first 16 steps."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        early = first.clone()
        early[16:] = 0
        return super().sequence(obs, state, early, actions)


@caught_by("every_state_tensor_is_used")
class NeverReadsC(ReferencePolicy):
    """c is part of the state but replaced by zeros at every step."""

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().cell(x, (state[0], torch.zeros_like(state[1])))


@caught_by("replay_from_stored_state")
class SingleStepStartsFromZeros(ReferencePolicy):
    """A sequence of one step ignores its start state."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        blank = self.initial_state(obs.shape[1])
        return super().sequence(obs, blank if len(obs) == 1 else state, first, actions)


@caught_by("replay_from_stored_state")
class OddSlotStartsFromZeros(ReferencePolicy):
    """With an odd number of slots, the last one starts from zeros."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        B = obs.shape[1]
        if B > 1 and B % 2:
            state = tuple(leaf * (torch.arange(B) < B - 1).to(leaf.dtype)[None, :, None] for leaf in state)
        return super().sequence(obs, state, first, actions)


@caught_by("steps_equal_sequence_across_resets")
class IgnoresFlagsAtChunkStarts(ReferencePolicy):
    """Learning splits sequences into chunks of 32 steps and ignores the flag at the start of each chunk."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        first = first.clone()
        first[32::32] = 0
        return super().sequence(obs, state, first, actions)


@caught_by("steps_equal_sequence_across_resets")
class IgnoresFlagTwoStepsAfterAnother(ReferencePolicy):
    """Learning ignores a flag that comes two steps after another."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        kept = first.clone()
        kept[2:] = torch.where(first[:-2] != 0, torch.zeros_like(first[2:]), first[2:])
        return super().sequence(obs, state, kept, actions)


@caught_by("memory_is_used")
class ActorHasNoMemory(ReferencePolicy):
    """Actions depend on the current observation only; only the critic uses memory."""

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        outputs, after = super().step(obs, state, first)
        log_probs = self.heads(self.encode(obs))[0]
        return {ACTIONS: outputs[ACTIONS], **self.scores(log_probs, outputs["value"], outputs[ACTIONS])}, after

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        outputs, final = super().sequence(obs, state, first, actions)
        return self.scores(self.heads(self.encode(obs))[0], outputs["value"], actions), final


@caught_by("every_observation_is_used")
class ValueIgnoresCurrentObservation(ReferencePolicy):
    """The value is computed from the memory before the current observation."""

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        outputs, after = super().step(obs, state, first)
        return {**outputs, "value": self.heads(self.reset(state, first)[0][-1])[1]}, after

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        outputs, final = super().sequence(obs, state, first, actions)
        values, now = [], state
        for x, flag in zip(self.encode(obs), first, strict=True):
            values.append(self.heads(self.reset(now, flag)[0][-1])[1])
            now = self.advance(x, now, flag)[1]
        return {**outputs, "value": torch.stack(values)}, final
