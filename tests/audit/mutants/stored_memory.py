"""Bugs in the memory that a policy keeps itself."""

from __future__ import annotations

import torch
from torch import Tensor

from audit.mutants.reference_policy import HIDDEN, LAYERS, Network, ReferencePolicy
from audit.mutants.register import caught_by
from holdfast.audit.subject import Outputs, State


@caught_by("memory_is_detached", "metta #1139, ml-agents #5048")
class StoresGraph(ReferencePolicy):
    """Memory is stored with its autograd graph."""

    def store(self, state: State, slots: Tensor) -> None:
        self.memory = tuple(table.index_copy(1, slots, leaf) for table, leaf in zip(self.memory, state, strict=True))

    def get_memory(self) -> State:
        return tuple(leaf.detach().clone() for leaf in self.memory)


@caught_by("graph_does_not_grow", "metta #1139, ml-agents #5048")
class GrowsGraph(ReferencePolicy):
    """Acting continues from a state that still has its autograd graph, so the graph grows with every step."""

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
class KeepsHistory(ReferencePolicy):
    """Acting appends every state to a list."""

    def __init__(self, seed: int = 0):
        self.history: list[Tensor] = []
        super().__init__(seed)

    def store(self, state: State, slots: Tensor) -> None:
        super().store(state, slots)
        self.history.append(state[0].detach())


@caught_by("memory_is_bounded")
class LearningKeepsHistory(ReferencePolicy):
    """Learning appends every batch to a list."""

    def __init__(self, seed: int = 0):
        self.history: list[Tensor] = []
        super().__init__(seed)

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        self.history.append(obs.detach())
        return super().sequence(obs, state, first, actions)


@caught_by("memory_round_trips")
class SetMemoryDropsC(ReferencePolicy):
    """set_memory restores h and zeroes c."""

    def set_memory(self, memory: State) -> None:
        super().set_memory((memory[0], torch.zeros_like(memory[1])))


@caught_by("get_memory_returns_a_copy")
class GetMemoryReturnsItsTable(ReferencePolicy):
    """get_memory returns the memory table itself."""

    def get_memory(self) -> State:
        return self.memory


@caught_by("set_memory_takes_a_copy")
class SetMemoryKeepsReference(ReferencePolicy):
    """set_memory keeps a reference to the caller's tensors."""

    def set_memory(self, memory: State) -> None:
        self.memory = memory


@caught_by("value_call_does_not_write_memory", "rsl_rl #130, #206")
class ValueCallAdvancesMemory(ReferencePolicy):
    """Computing a bootstrap value stores the new state."""

    def value_from_memory(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        return self.act(obs, terminated, truncated, slots)


@caught_by("value_call_equals_acting")
class ValueFromBlankMemory(ReferencePolicy):
    """Bootstrap values are computed from the initial state."""

    def value_from_memory(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        return self.step(obs, self.initial_state(len(slots)), self.ended(terminated, truncated))[0]


@caught_by("value_call_equals_acting")
class ValueByBatchPosition(ReferencePolicy):
    """Bootstrap values look up memory by position in the batch, not by slot id."""

    def value_from_memory(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        return super().value_from_memory(obs, terminated, truncated, torch.arange(len(slots)))


@caught_by("value_call_equals_acting")
class ValueIgnoresReset(ReferencePolicy):
    """The bootstrap value of a first observation uses the memory of the previous episode."""

    def value(self, obs: Tensor, state: State, first: Tensor) -> Outputs:
        return self.step(obs, state, torch.zeros_like(first))[0]


@caught_by("reset_memory_clears_everything", "IsaacLab #3837; PufferLib 3.0")
class ResetMemoryClearsCopy(ReferencePolicy):
    """reset_memory clears a copy of the memory, not the memory itself."""

    def reset_memory(self) -> None:
        for leaf in self.get_memory():
            leaf.zero_()


@caught_by("reset_slots_clears_only_those", "tianshou's collector")
class ResetSlotsClearsCopy(ReferencePolicy):
    """memory[:, slots].zero_() clears the copy that indexing makes."""

    def reset_slots(self, slots: Tensor) -> None:
        for leaf in self.memory:
            leaf[:, slots].zero_()


@caught_by("reset_slots_clears_only_those", "the first version of MettaGrid's trainer")
class ResetSlotsClearsAll(ReferencePolicy):
    """Resetting one slot resets all slots."""

    def reset_slots(self, slots: Tensor) -> None:
        self.reset_memory()


@caught_by("reset_slots_clears_only_those")
class ResetSlotsClearsFirstOnly(ReferencePolicy):
    """Of several slots, only the first is reset."""

    def reset_slots(self, slots: Tensor) -> None:
        super().reset_slots(slots[:1])


@caught_by("weights_load_with_other_slots", "metta #3299")
class SavesMemoryWithWeights(ReferencePolicy):
    """Memory is a buffer that is saved with the weights."""

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        outputs = super().act(obs, terminated, truncated, slots)
        self.module.register_buffer("kept", self.memory[0].clone())
        return outputs


@caught_by("weights_load_with_other_slots", explained="the initial state is .* away.*a parameter or a buffer")
class StartStateIsNotSaved(ReferencePolicy):
    """Episodes start from random numbers that are drawn with the weights, but not saved with them."""

    def network(self) -> Network:
        self.start = torch.randn(2, LAYERS, 1, HIDDEN)
        return super().network()

    def initial_state(self, B: int) -> State:
        return tuple(leaf.repeat(1, B, 1) for leaf in self.start)

    def reset(self, state: State, first: Tensor) -> State:
        begins = (first != 0)[None, :, None]
        return tuple(torch.where(begins, new, leaf) for leaf, new in zip(state, self.start, strict=True))

    def reset_memory(self) -> None:
        self.memory = self.initial_state(self.memory[0].shape[1])

    def reset_slots(self, slots: Tensor) -> None:
        for leaf, new in zip(self.memory, self.start, strict=True):
            leaf[:, slots] = new
