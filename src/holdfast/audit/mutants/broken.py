"""The mutants. Each differs from `Sound` in one place, as a real project once did or easily could."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.audit.mutants.sound import CHOICES, HIDDEN, LAYERS, Network, Sound
from holdfast.audit.subject import Outputs, State


@dataclass(frozen=True)
class Mutant:
    """A broken policy, the check that is there to catch it, and where such a bug was seen."""

    kind: type[Sound]
    check: str
    seen: str = ""

    @property
    def name(self) -> str:
        return self.kind.__name__

    @property
    def what(self) -> str:
        return (self.kind.__doc__ or "").strip()


MUTANTS: list[Mutant] = []


def caught_by(check: str, seen: str = "") -> Callable[[type[Sound]], type[Sound]]:
    def add(kind: type[Sound]) -> type[Sound]:
        MUTANTS.append(Mutant(kind, check, seen))
        return kind

    return add


# ---------------------------------------------------------------------------------------------------- episode ends


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


@caught_by("every_part_of_the_state_is_reset")
class ResetsOnlyH(Sound):
    """h is cleared, c is not."""

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, first)[0], state[1]


@caught_by("every_part_of_the_state_is_reset")
class ResetsTheTopLayer(Sound):
    """Only the last layer is cleared."""

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


@caught_by("gradients_stop_at_a_reset")
class ResetsValuesOnly(Sound):
    """The state is cleared by subtracting a detached copy: gradients go through."""

    def reset(self, state: State, first: Tensor) -> State:
        ended = (first != 0)[None, :, None]
        return tuple(torch.where(ended, leaf - leaf.detach(), leaf) for leaf in state)


# ----------------------------------------------------------------------------------------------------------- slots


@caught_by("slots_are_apart", "MettaGrid's own LSTM policy")
class ScalesByTheBatch(Sound):
    """Observations are divided by the largest of the batch."""

    def encode(self, obs: Tensor) -> Tensor:
        return super().encode(obs / obs.abs().max())


@caught_by("slots_are_apart")
class NormalisesOverSlots(Sound):
    """Features are centred by their mean over the batch."""

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        return x - x.flatten(0, -2).mean(0)


@caught_by("slots_are_apart_in_gradients")
class MixesGradients(Sound):
    """The batch mean is there for gradients only."""

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        mean = state[0].mean(1, keepdim=True)
        return super().cell(x, (state[0] + (mean - mean.detach()), state[1]))


@caught_by("any_company")
class KnowsItsPosition(Sound):
    """Adds something that depends on the row in the batch."""

    def encode(self, obs: Tensor) -> Tensor:
        return super().encode(obs) + 0.1 * torch.arange(obs.shape[-2]).float()[:, None]


@caught_by("layers_are_in_place", "sb3-contrib #111")
class ReshapesLayers(Sound):
    """[slots, layers, hidden] is viewed as [layers, slots, hidden] when a sequence begins."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        mixed = tuple(leaf.transpose(0, 1).reshape(leaf.shape) for leaf in state)
        return super().sequence(obs, mixed, first, actions)


@caught_by("layers_are_in_place")
class StartsOneLayer(Sound):
    """A sequence takes the start state of the last layer for all of them."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return super().sequence(obs, tuple(leaf[-1:].expand(LAYERS, -1, -1) for leaf in state), first, actions)


@caught_by("slots_in_any_order")
class MemoryByPosition(Sound):
    """Memory is found by the position in the batch."""

    def recall(self, slots: Tensor) -> State:
        return super().recall(torch.arange(len(slots)))

    def store(self, state: State, slots: Tensor) -> None:
        super().store(state, torch.arange(len(slots)))


@caught_by("slots_in_other_slices", "the first version of MettaGrid's trainer")
class MemoryBySlice(Sound):
    """Memory is kept whole for each slice, under the number of its first slot."""

    def __init__(self, seed: int = 0):
        self.slices: dict[int, State] = {}
        super().__init__(seed)

    def recall(self, slots: Tensor) -> State:
        kept = self.slices.get(int(slots[0]))
        if kept is None or kept[0].shape[1] != len(slots):
            return self.initial_state(len(slots))
        return kept

    def store(self, state: State, slots: Tensor) -> None:
        self.slices[int(slots[0])] = tuple(leaf.detach() for leaf in state)

    def get_memory(self) -> State:
        return tuple(leaf.clone() for leaf in self.slices.get(0, self.initial_state(1)))

    def set_memory(self, memory: State) -> None:
        self.slices = {0: tuple(leaf.detach().clone() for leaf in memory)}


# ------------------------------------------------------------------------------------------------------------ time


@caught_by("memory_is_used", "SB3 predict; torchrl #1406")
class ForgetsEverything(Sound):
    """The state is cleared at every step."""

    def reset(self, state: State, first: Tensor) -> State:
        return tuple(torch.zeros_like(leaf) for leaf in state)


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


@caught_by("steps_equal_a_sequence_across_ends")
class ResetsOnlyWhileActing(Sound):
    """While learning, an episode that begins keeps half of the old memory."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        ys = []
        for x, now in zip(self.encode(obs), first, strict=True):
            kept = 1.0 - 0.5 * (now != 0).float()[None, :, None]
            y, state = self.cell(x, tuple(leaf * kept for leaf in state))
            ys.append(y)
        assert actions is not None
        return self.scores(*self.heads(torch.stack(ys)), actions), state


@caught_by("the_final_state_is_right", "torchrl #3711")
class LosesTheFinalState(Sound):
    """The state before the last step is handed back."""

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


@caught_by("gradients_flow_within_an_episode")
class DetachesEveryStep(Sound):
    """The state is detached between the steps of a sequence."""

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return super().cell(x, tuple(leaf.detach() for leaf in state))


# -------------------------------------------------------------------------------------------------------- learning


@caught_by("log_probs_replay", "the first version of MettaGrid's trainer")
class ScoresTheWrongAction(Sound):
    """Learning scores the next action's log-prob."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        outputs, final = super().sequence(obs, state, first, actions)
        wrong = self.scores(outputs["full_log_probs"], outputs["value"], (actions + 1) % CHOICES)
        return {**outputs, "log_prob": wrong["log_prob"]}, final


@caught_by("values_replay")
class ValuesSeeNoMemory(Sound):
    """While learning, values come from the features instead of the memory."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        outputs, final = super().sequence(obs, state, first, actions)
        return {**outputs, "value": self.heads(self.encode(obs))[1]}, final


@caught_by("entropy_is_that_of_the_policy")
class EntropyOfLogits(Sound):
    """Entropy of probabilities that were squared by mistake."""

    def scores(self, log_probs: Tensor, value: Tensor, actions: Tensor) -> Outputs:
        sharp = (2 * log_probs).log_softmax(-1)
        return {**super().scores(log_probs, value, actions), "entropy": -(sharp.exp() * sharp).sum(-1)}


@caught_by("start_states_are_not_changed")
class ClearsInPlace(Sound):
    """Resets write zeros into the tensors they were given."""

    def reset(self, state: State, first: Tensor) -> State:
        if any(leaf.requires_grad for leaf in state):
            return super().reset(state, first)
        for leaf in state:
            leaf[:, first != 0] = 0.0
        return state


@caught_by("learning_leaves_memory_alone", "the first version of MettaGrid's trainer")
class LearningWritesMemory(Sound):
    """Scoring stores its final state as the memory that acting continues from."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        outputs, final = super().sequence(obs, state, first, actions)
        slots = torch.arange(min(obs.shape[1], self.memory[0].shape[1]))
        if len(slots):
            self.store(tuple(leaf[:, : len(slots)] for leaf in final), slots)
        return outputs, final


class Normalising(Network):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(HIDDEN))


@caught_by("calls_change_no_weights", "Sample Factory, rl_games, skrl, rsl_rl")
class NormaliserMoves(Sound):
    """Running statistics move in every forward."""

    def network(self) -> Network:
        return Normalising()

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        mean = self.module.get_buffer("mean")
        mean.copy_(0.9 * mean + 0.1 * x.detach().flatten(0, -2).mean(0))
        return x - mean.clone()


@caught_by("equal_calls_are_equal")
class AddsNoise(Sound):
    """Features are shaken a little."""

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        return x + 0.01 * torch.randn_like(x)


@caught_by("both_modes_agree")
class DropsOut(Sound):
    """Dropout between memory and heads."""

    def heads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return super().heads(nn.functional.dropout(y, 0.3, self.module.training))


# ---------------------------------------------------------------------------------------------------- kept memory


@caught_by("memory_has_no_graph", "metta #1139, ml-agents #5048")
class KeepsTheGraph(Sound):
    """Memory is stored with its graph."""

    def store(self, state: State, slots: Tensor) -> None:
        self.memory = tuple(table.index_copy(1, slots, leaf) for table, leaf in zip(self.memory, state, strict=True))

    def get_memory(self) -> State:
        return tuple(leaf.detach().clone() for leaf in self.memory)


@caught_by("graphs_do_not_grow", "metta #1139, ml-agents #5048")
class GrowsTheGraph(KeepsTheGraph):
    """The graph of every step since the start hangs on the newest output."""


@caught_by("memory_is_bounded")
class KeepsAHistory(Sound):
    """Every state ever seen is kept in a list."""

    def __init__(self, seed: int = 0):
        self.history: list[Tensor] = []
        super().__init__(seed)

    def store(self, state: State, slots: Tensor) -> None:
        super().store(state, slots)
        self.history.append(state[0].detach())


@caught_by("memory_comes_back")
class RestoresHalf(Sound):
    """set_memory takes h and leaves c blank."""

    def set_memory(self, memory: State) -> None:
        super().set_memory((memory[0], torch.zeros_like(memory[1])))


@caught_by("memory_is_handed_out_as_a_copy")
class HandsOutItsTable(Sound):
    """get_memory gives the table itself."""

    def get_memory(self) -> State:
        return self.memory


@caught_by("memory_is_taken_over_as_a_copy")
class TakesTheCallersTensors(Sound):
    """set_memory keeps what it is given."""

    def set_memory(self, memory: State) -> None:
        self.memory = memory


@caught_by("looking_leaves_memory_alone", "rsl_rl #130, #206")
class LookingAdvances(Sound):
    """Computing a value stores the state it leads to."""

    def look(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        return self.act(obs, terminated, truncated, slots)


@caught_by("a_reset_memory_is_blank", "IsaacLab #3837; PufferLib 3.0")
class ResetDoesNothing(Sound):
    """reset_memory clears a copy."""

    def reset_memory(self) -> None:
        for leaf in self.get_memory():
            leaf.zero_()


@caught_by("single_slots_are_cleared", "tianshou's collector")
class ClearsACopy(Sound):
    """memory[:, slots].zero_() clears what indexing copied."""

    def reset_slots(self, slots: Tensor) -> None:
        for leaf in self.memory:
            leaf[:, slots].zero_()


@caught_by("single_slots_are_cleared", "the first version of MettaGrid's trainer")
class ClearsTheWholeSlice(Sound):
    """Clearing one slot drops all."""

    def reset_slots(self, slots: Tensor) -> None:
        self.reset_memory()


@caught_by("weights_load_with_other_slots", "metta #3299")
class SavesItsMemory(Sound):
    """Memory is a buffer that is saved with the weights."""

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        outputs = super().act(obs, terminated, truncated, slots)
        self.module.register_buffer("kept", self.memory[0].clone())
        return outputs
