"""Memory that does not carry through time, or carries what it must not."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.audit.mutants.register import caught_by
from holdfast.audit.mutants.sound import Sound
from holdfast.audit.subject import ACTIONS, Outputs, State


@caught_by("memory_is_used", "SB3 predict; torchrl #1406")
class ForgetsEverything(Sound):
    """The state is cleared at every step."""

    def reset(self, state: State, first: Tensor) -> State:
        return tuple(torch.zeros_like(leaf) for leaf in state)


@caught_by("memory_is_used")
class TurnsTheMaskRound(Sound):
    """The state is multiplied by done instead of 1 - done: kept where an episode begins, cleared where it goes on."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, first == 0)


@caught_by("memory_is_used", "SB3 predict; torchrl #1406")
class ForgetsWhileActing(Sound):
    """Acting starts every step from a blank memory; learning carries it on."""

    def recall(self, slots: Tensor) -> State:
        super().recall(slots)  # makes room for them
        return self.initial_state(len(slots))


@caught_by("first_observations_are_remembered", "rl_games #362, CleanRL's pqn with envpool")
class ResetsAfterTheStep(Sound):
    """The state is cleared after the step that should have begun blank: the old episode gets in, the new one's start is lost."""

    def advance(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        y, state = self.cell(x, state)
        return y, self.reset(state, first)


@caught_by("every_observation_is_seen", "the first version of MettaGrid's trainer; PufferLib's reset")
class MissesFirstObservations(Sound):
    """Where an episode begins, the observation is blanked out with the memory."""

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        return super().step(obs * (first == 0).float()[:, None], state, first)


@caught_by("the_future_is_not_seen")
class LooksAhead(Sound):
    """While learning, features are averaged with those of the next step."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        ahead = torch.cat([obs[1:], obs[-1:]])
        return super().sequence((obs + ahead) / 2, state, first, actions)


@caught_by("steps_equal_a_sequence", "cleanrl #83; recurrent-ppo-truncated-bptt")
class MixesTimeAndSlots(Sound):
    """A reshape takes [T, B] for [B, T]."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        T, B = first.shape
        mixed = obs.reshape(B, T, -1).transpose(0, 1)
        return super().sequence(mixed, state, first, actions)


@caught_by("steps_equal_a_sequence_across_ends", "PufferLib's LSTMWrapper, MettaGrid's own LSTM policy")
class ResetsOnlyWhileActing(Sound):
    """Acting resets; learning is not told where episodes begin."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return super().sequence(obs, state, torch.zeros_like(first), actions)


@caught_by("steps_equal_a_sequence_across_ends")
class ResetsOnlyWhileLearning(Sound):
    """Learning resets; acting never does."""

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        return super().step(obs, state, torch.zeros_like(first))


@caught_by("steps_equal_a_sequence")
class LearnsInChunks(Sound):
    """Learning cuts a sequence into chunks of 16, and starts each from a blank memory."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        parts, after = [], state
        for chunk in zip(*(x.split(16) for x in (obs, first, actions)), strict=True):
            outputs, after = super().sequence(chunk[0], state, *chunk[1:])
            parts.append(outputs)
            state = self.initial_state(obs.shape[1])
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, after


@caught_by("scoring_equals_a_sequence")
class ScoresFromZeros(Sound):
    """Scoring ignores the start state it is given."""

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        return super().score(obs, terminated, truncated, self.initial_state(obs.shape[1]), actions)


@caught_by("scoring_equals_a_sequence")
class ScoresWithoutGradients(Sound):
    """Scoring detaches the start state and everything after it."""

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        return super().score(obs, terminated, truncated, tuple(leaf.detach() for leaf in state), actions)


@caught_by("the_final_state_is_right", "torchrl #3711")
class LosesTheFinalState(Sound):
    """The state that a sequence hands back is not the last one: here the one before the last step."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        outputs, final = super().sequence(obs, state, first, actions)
        if len(obs) > 1:
            final = super().sequence(obs[:-1], state, first[:-1], None if actions is None else actions[:-1])[1]
        return outputs, final


@caught_by("the_start_state_is_used", "tianshou #486")
class StartsFromZeros(Sound):
    """Learning starts every sequence from zeros."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return super().sequence(obs, self.initial_state(obs.shape[1]), first, actions)


@caught_by("the_start_state_is_the_right_one", "ml-agents #4941")
class StartsOneStepLate(Sound):
    """Learning starts a sequence from the memory after its first step instead of the one before it."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        _, late = super().sequence(obs[:1], state, first[:1], None if actions is None else actions[:1])
        return super().sequence(obs, late, first, actions)


@caught_by("the_start_state_is_the_right_one")
class RecordsTooLate(Sound):
    """The memory that is recorded for learning is the one before the last step."""

    def store(self, state: State, slots: Tensor) -> None:
        self.before = super().get_memory()
        super().store(state, slots)

    def set_memory(self, memory: State) -> None:
        super().set_memory(memory)
        self.before = super().get_memory()

    def get_memory(self) -> State:
        return tuple(leaf.clone() for leaf in self.before)


@caught_by("steps_equal_a_sequence_across_ends")
class LosesLateFlags(Sound):
    """Learning looks at the flags of its first 16 steps."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        early = first.clone()
        early[16:] = 0
        return super().sequence(obs, state, early, actions)


@caught_by("every_tensor_of_the_state_is_used")
class ReadsHalfTheState(Sound):
    """c is carried along and handed in as zeros at every step."""

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().cell(x, (state[0], torch.zeros_like(state[1])))


@caught_by("the_start_state_is_the_right_one")
class OneStepStartsFromZeros(Sound):
    """A sequence of a single step ignores the state it is given."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        blank = self.initial_state(obs.shape[1])
        return super().sequence(obs, blank if len(obs) == 1 else state, first, actions)


@caught_by("the_start_state_is_the_right_one")
class TheOddSlotStartsFromZeros(Sound):
    """A batch is halved, and of an odd number of slots the last one loses its start state."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        B = obs.shape[1]
        if B > 1 and B % 2:
            state = tuple(leaf * (torch.arange(B) < B - 1).to(leaf.dtype)[None, :, None] for leaf in state)
        return super().sequence(obs, state, first, actions)


@caught_by("steps_equal_a_sequence_across_ends")
class LosesFlagsOfChunks(Sound):
    """Learning goes through chunks of 32 steps, and loses the flag that a chunk begins with."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        first = first.clone()
        first[32::32] = 0
        return super().sequence(obs, state, first, actions)


@caught_by("steps_equal_a_sequence_across_ends")
class LosesTheSecondOfTwoFlags(Sound):
    """While learning, a flag two steps after another one is lost."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        kept = first.clone()
        kept[2:] = torch.where(first[:-2] != 0, torch.zeros_like(first[2:]), first[2:])
        return super().sequence(obs, state, kept, actions)


@caught_by("memory_is_used")
class OnlyValuesRemember(Sound):
    """Actions are chosen by what is seen now; only the critic reads memory."""

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        outputs, after = super().step(obs, state, first)
        log_probs = self.heads(self.encode(obs))[0]
        return {ACTIONS: outputs[ACTIONS], **self.scores(log_probs, outputs["value"], outputs[ACTIONS])}, after

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        outputs, final = super().sequence(obs, state, first, actions)
        return self.scores(self.heads(self.encode(obs))[0], outputs["value"], actions), final


@caught_by("every_observation_is_seen")
class ValuesComeAStepLate(Sound):
    """The value is read off the memory from before the observation that it is of."""

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
