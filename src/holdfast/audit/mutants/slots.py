"""Slots that see each other, or take each other's place."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.audit.mutants.register import caught_by
from holdfast.audit.mutants.sound import HIDDEN, LAYERS, Network, Sound
from holdfast.audit.subject import Outputs, State


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


@caught_by("slots_are_apart")
class HasABatchNorm(Sound):
    """Features go through a BatchNorm."""

    def network(self) -> Network:
        network = super().network()
        self.norm = nn.BatchNorm1d(HIDDEN)
        network.add_module("norm", self.norm)
        return network

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        rows = x.flatten(0, -2)
        return x if len(rows) == 1 else self.norm(rows).view_as(x)  # it refuses a batch of one


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


@caught_by("slots_in_any_order")
class ResetsByPosition(Sound):
    """Where an episode begins, the row at that position of the batch is cleared, not the row of that slot."""

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        ended = self.ended(terminated, truncated)
        self.recall(slots)  # makes room for them
        self.reset_slots(ended.nonzero().flatten())
        outputs, state = self.step(obs, self.recall(slots), torch.zeros_like(ended))
        self.store(state, slots)
        return outputs


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


@caught_by("slots_in_any_order")
class OneSlotIsTheFirst(Sound):
    """A batch of one is taken for slot 0."""

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        return super().act(obs, terminated, truncated, slots if len(slots) > 1 else torch.zeros_like(slots))


@caught_by("slots_in_any_order")
class SlotsWrapRound(Sound):
    """The table has four rows, and slots share them."""

    def recall(self, slots: Tensor) -> State:
        return super().recall(slots % 4)

    def store(self, state: State, slots: Tensor) -> None:
        super().store(state, slots % 4)


@caught_by("any_company")
class LargeBatchesAreCut(Sound):
    """In batches of more than eight, slots are given what the one before them got."""

    def heads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return super().heads(y if y.shape[-2] <= 8 else torch.cat([y[..., :3, :], y[..., 2:-1, :]], -2))


@caught_by("any_company")
class LateRowsRepeat(Sound):
    """Rows of a batch from the ninth on are given what the first ones get: a table that is too small, read round."""

    def heads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return super().heads(y[..., torch.arange(y.shape[-2]) % 8, :])
