"""Kept memory with a graph, without bounds, shared or saved where it must not be."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.audit.mutants.register import caught_by
from holdfast.audit.mutants.sound import Sound
from holdfast.audit.subject import Outputs, State


@caught_by("memory_has_no_graph", "metta #1139, ml-agents #5048")
class KeepsTheGraph(Sound):
    """Memory is stored with its graph."""

    def store(self, state: State, slots: Tensor) -> None:
        self.memory = tuple(table.index_copy(1, slots, leaf) for table, leaf in zip(self.memory, state, strict=True))

    def get_memory(self) -> State:
        return tuple(leaf.detach().clone() for leaf in self.memory)


@caught_by("graphs_do_not_grow", "metta #1139, ml-agents #5048")
class GrowsTheGraph(Sound):
    """The graph of every step since the start hangs on the newest output, and is kept where nobody can look."""

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        hidden: list[State] = []

        def put(state: State) -> None:
            hidden[:] = [state]

        self.put, self.take = put, lambda: hidden[0] if hidden else None

    def recall(self, slots: Tensor) -> State:
        kept = self.take()
        plain = super().recall(slots)
        return kept if kept is not None and kept[0].shape == plain[0].shape else plain

    def store(self, state: State, slots: Tensor) -> None:
        super().store(state, slots)
        self.put(state)

    def set_memory(self, memory: State) -> None:
        super().set_memory(memory)
        self.put(self.memory)

    def reset_memory(self) -> None:
        super().reset_memory()
        self.put(self.memory)


@caught_by("memory_is_bounded")
class KeepsAHistory(Sound):
    """Every state ever seen is kept in a list."""

    def __init__(self, seed: int = 0):
        self.history: list[Tensor] = []
        super().__init__(seed)

    def store(self, state: State, slots: Tensor) -> None:
        super().store(state, slots)
        self.history.append(state[0].detach())


@caught_by("memory_is_bounded")
class LearningKeepsAHistory(Sound):
    """Every batch that was learned from is kept in a list."""

    def __init__(self, seed: int = 0):
        self.history: list[Tensor] = []
        super().__init__(seed)

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        self.history.append(obs.detach())
        return super().sequence(obs, state, first, actions)


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


@caught_by("looking_gives_the_value")
class LooksFromABlankMemory(Sound):
    """Values for a bootstrap are computed as if nothing had been lived."""

    def look(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        return self.step(obs, self.initial_state(len(slots)), self.ended(terminated, truncated))[0]


@caught_by("looking_gives_the_value")
class LooksByPosition(Sound):
    """A value is looked up with the memory at a slot's position in the batch, not with its own."""

    def look(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        return super().look(obs, terminated, truncated, torch.arange(len(slots)))


@caught_by("looking_gives_the_value")
class LooksPastTheEnd(Sound):
    """The value of a first observation is computed with the memory of the episode before."""

    def value(self, obs: Tensor, state: State, first: Tensor) -> Outputs:
        return self.step(obs, state, torch.zeros_like(first))[0]


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


@caught_by("single_slots_are_cleared")
class ClearsTheFirstNamed(Sound):
    """Of several slots that are named, one is cleared."""

    def reset_slots(self, slots: Tensor) -> None:
        super().reset_slots(slots[:1])


@caught_by("weights_load_with_other_slots", "metta #3299")
class SavesItsMemory(Sound):
    """Memory is a buffer that is saved with the weights."""

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        outputs = super().act(obs, terminated, truncated, slots)
        self.module.register_buffer("kept", self.memory[0].clone())
        return outputs
