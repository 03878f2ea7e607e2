"""Bugs that mix up slots."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from audit.mutants.reference_policy import HIDDEN, LAYERS, Network, ReferencePolicy
from audit.mutants.register import caught_by
from holdfast.audit.subject import Outputs, State


@caught_by("slots_are_independent", "MettaGrid's own LSTM policy")
class ScalesByBatchMaximum(ReferencePolicy):
    """Observations are divided by the maximum of the batch."""

    def encode(self, obs: Tensor) -> Tensor:
        return super().encode(obs / obs.abs().max())


@caught_by("slots_are_independent")
class SubtractsBatchMean(ReferencePolicy):
    """The batch mean is subtracted from the features."""

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        return x - x.flatten(0, -2).mean(0)


@caught_by("slots_are_independent")
class UsesBatchNorm(ReferencePolicy):
    """Features go through BatchNorm."""

    def network(self) -> Network:
        network = super().network()
        self.norm = nn.BatchNorm1d(HIDDEN)
        network.add_module("norm", self.norm)
        return network

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        rows = x.flatten(0, -2)
        return x if len(rows) == 1 else self.norm(rows).view_as(x)  # it refuses a batch of one


@caught_by("slot_gradients_are_independent")
class MixesSlotGradients(ReferencePolicy):
    """The batch mean is added with a gradient and subtracted without one, so only gradients mix slots."""

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        mean = state[0].mean(1, keepdim=True)
        return super().cell(x, (state[0] + (mean - mean.detach()), state[1]))


@caught_by("batch_independent")
class DependsOnBatchPosition(ReferencePolicy):
    """Features depend on the position in the batch."""

    def encode(self, obs: Tensor) -> Tensor:
        return super().encode(obs) + 0.1 * torch.arange(obs.shape[-2]).float()[:, None]


@caught_by("layers_are_not_mixed", "sb3-contrib #111")
class ReshapesLayers(ReferencePolicy):
    """Learning reshapes the start state from [slots, layers, hidden] to [layers, slots, hidden] instead of transposing it."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        mixed = tuple(leaf.transpose(0, 1).reshape(leaf.shape) for leaf in state)
        return super().sequence(obs, mixed, first, actions)


@caught_by("layers_are_not_mixed")
class AllLayersStartFromLast(ReferencePolicy):
    """Learning starts every layer from the state of the last one."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return super().sequence(obs, tuple(leaf[-1:].expand(LAYERS, -1, -1) for leaf in state), first, actions)


@caught_by("slots_in_any_order")
class MemoryByBatchPosition(ReferencePolicy):
    """Memory is looked up by position in the batch, not by slot id."""

    def recall(self, slots: Tensor) -> State:
        return super().recall(torch.arange(len(slots)))

    def store(self, state: State, slots: Tensor) -> None:
        super().store(state, torch.arange(len(slots)))


@caught_by("slots_in_any_order")
class ResetsByBatchPosition(ReferencePolicy):
    """A reset clears the memory row at the slot's position in the batch, not the row of its slot id."""

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        ended = self.ended(terminated, truncated)
        self.recall(slots)  # makes room for them
        self.reset_slots(ended.nonzero().flatten())
        outputs, state = self.step(obs, self.recall(slots), torch.zeros_like(ended))
        self.store(state, slots)
        return outputs


@caught_by("slots_in_other_batches", "the first version of MettaGrid's trainer")
class MemoryByFirstSlot(ReferencePolicy):
    """Memory is stored per batch, under the id of the batch's first slot."""

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


@caught_by("slots_in_any_order")
class SingleSlotBecomesSlotZero(ReferencePolicy):
    """A batch of one slot uses the memory of slot 0."""

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        return super().act(obs, terminated, truncated, slots if len(slots) > 1 else torch.zeros_like(slots))


@caught_by("slots_in_any_order")
class SlotsModuloFour(ReferencePolicy):
    """The memory table has four rows, which slots share (slot % 4)."""

    def recall(self, slots: Tensor) -> State:
        return super().recall(slots % 4)

    def store(self, state: State, slots: Tensor) -> None:
        super().store(state, slots % 4)


@caught_by("batch_independent")
class ShiftsRowsOfLargeBatches(ReferencePolicy):
    """In batches of more than eight, most rows get the output of the row before."""

    def heads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return super().heads(y if y.shape[-2] <= 8 else torch.cat([y[..., :3, :], y[..., 2:-1, :]], -2))


@caught_by("batch_independent")
class RowsModuloEight(ReferencePolicy):
    """Rows 8 and above of a batch get the outputs of the first rows (row % 8)."""

    def heads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return super().heads(y[..., torch.arange(y.shape[-2]) % 8, :])
