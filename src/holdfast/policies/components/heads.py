"""Components for action heads: they compute one score (logit) per action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from holdfast.policies.actions import distribution_for
from holdfast.policies.components.component import BuildContext, Component, Params, Shape, Size, WiringError
from holdfast.policies.parts import heads, layers
from holdfast.policies.vocabulary import action_names
from holdfast.spec import BoxActions, MixedActions


class ActionEmbedding(Component):
    """One learned vector per action, looked up by the action's name."""

    reads = ()

    class Params(Params):
        num_embeddings: Size = 100
        embedding_dim: Size = 16

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        self.layer = heads.ActionEmbedding(*context, **params.model_dump())
        return Shape("embeddings", (params.embedding_dim,))

    def forward(self, obs: Tensor) -> Tensor:
        return self.layer()


class MettaActorSingleHead(Component):
    """Compute one score per action of the world: score[a] = tanh(h W) . embedding[a] + b."""

    reads = (("vector",), ("embeddings",))

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        self.layer = heads.BilinearHead(inputs[0].sizes[0], inputs[1].sizes[0])
        return Shape("vector", (distribution_for(context.spec.actions).num_params,))


class ActionHead(Component):
    """A linear action head: one score per discrete action, or per choice in each dimension of a MultiDiscrete action."""

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        num_params = distribution_for(context.spec.actions).num_params
        if isinstance(context.spec.actions, BoxActions | MixedActions):
            raise WiringError(f"{context.spec.name} has real-valued actions. Use py_agent=box for this world.")
        if action_names(context.spec.actions):
            self.layer = heads.ActionHead(*context, inputs[0].sizes[0])
        else:
            self.layer = layers.linear(inputs[0].sizes[0], num_params, gain=0.01)
        return Shape("vector", (num_params,))
