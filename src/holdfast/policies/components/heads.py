"""Components that score actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from holdfast.policies.actions import distribution_for
from holdfast.policies.components.component import Component, Entry, Params, Place, Shape, WiringError
from holdfast.policies.components.layers import Size
from holdfast.policies.parts import heads, layers
from holdfast.policies.vocabulary import action_names
from holdfast.spec import BoxActions


class ActionEmbedding(Component):
    """One learned vector per action, found by the action's name."""

    reads = ()

    class Params(Params):
        num_embeddings: Size = 100
        embedding_dim: Size = 16

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        self.layer = heads.ActionEmbedding(place.spec, place.vocabulary, params.num_embeddings, params.embedding_dim)
        self.out = Shape("embeddings", (params.embedding_dim,))

    def forward(self, obs: Tensor) -> Tensor:
        return self.layer()


class MettaActorSingleHead(Component):
    """score[a] = tanh(h W) . embedding[a] + b: one score per action of the present world."""

    reads = (("vector",), ("embeddings",))

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        self.layer = heads.BilinearHead(inputs[0].sizes[0], inputs[1].sizes[0])
        self.out = Shape("vector", (distribution_for(place.spec.actions).num_params,))

    def forward(self, h: Tensor, embeddings: Tensor) -> Tensor:
        return self.layer(h, embeddings)


class ActionHead(Component):
    """A plain linear head: one score per action, or the numbers a world with other actions needs."""

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        num_params = distribution_for(place.spec.actions).num_params
        if isinstance(place.spec.actions, BoxActions):
            raise WiringError(f"{place.spec.name} takes real numbers as actions; py_agent=box knows them")
        if action_names(place.spec.actions):
            self.layer = heads.ActionHead(place.spec, place.vocabulary, inputs[0].sizes[0])
        else:
            self.layer = layers.linear(inputs[0].sizes[0], num_params, gain=0.01)
        self.out = Shape("vector", (num_params,))

    def forward(self, h: Tensor) -> Tensor:
        return self.layer(h)
