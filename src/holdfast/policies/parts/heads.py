"""Action heads that look actions up by name, so that one policy runs in worlds with different action lists."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import SettingsError
from holdfast.policies.parts.layers import linear
from holdfast.policies.vocabulary import Adaptive, Vocabulary, action_names, grow
from holdfast.spec import WorldSpec


class NamedActions(Adaptive):
    """Base class of layers that store one weight row per action name, and look up the rows of the world's actions.

    An unknown action gets row 0, but the policy masks it, so that it is never taken.
    """

    finds = "actions"

    def adapt(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        names = action_names(spec.actions)
        if not names:
            raise SettingsError(
                f"this agent needs action names, but {spec.name} has none.\nUse py_agent=box for this world."
            )
        known = {name: row for row, name in enumerate(vocabulary.actions)}
        rows = torch.tensor([known.get(name, 0) for name in names], device=next(self.parameters()).device)
        self.rows = nn.Buffer(rows, persistent=False)


class ActionEmbedding(NamedActions):
    """One learned vector per action, initialised so that the largest entry is 1.

    BilinearHead multiplies tanh(h W) by these vectors. If the entries were smaller, the tanh would
    saturate in the first updates, as soon as the policy prefers one action; it would then hardly react to observations.
    """

    def __init__(self, spec: WorldSpec, vocabulary: Vocabulary, num_embeddings: int, embedding_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_embeddings, embedding_dim))
        nn.init.orthogonal_(self.weight)
        with torch.no_grad():
            self.weight.div_(self.weight.abs().max())
        self.adapt(spec, vocabulary)

    def adapt(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        super().adapt(spec, vocabulary)
        if len(vocabulary.actions) > len(self.weight):
            count = len(vocabulary.actions)
            raise SettingsError(
                f"this agent has embeddings for {len(self.weight)} actions; with {spec.name} it needs {count}. "
                "Train an agent with more embeddings (num_embeddings of ActionEmbedding in an agent file), or use fewer "
                "actions (in a MettaGrid configuration, most belong to game.actions.change_vibe)."
            )

    def forward(self) -> Tensor:
        """Return the embeddings [A, embedding_dim] of the current world's actions."""
        return self.weight[self.rows]


class BilinearHead(nn.Module):
    """Compute score[a] = tanh(h W) . embedding[a] + b for every action a; tanh(h W) is computed once for all actions."""

    def __init__(self, in_features: int, embedding_dim: int):
        super().__init__()
        bound = 1.0 / math.sqrt(in_features)
        self.W = nn.Parameter(torch.empty(in_features, embedding_dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(1).uniform_(-bound, bound))

    def forward(self, h: Tensor, embeddings: Tensor) -> Tensor:
        """Return the scores [N, A] for h [N, in_features] and embeddings [A, embedding_dim]."""
        return torch.tanh(h @ self.W) @ embeddings.T + self.bias


class ActionHead(NamedActions):
    """A linear layer with one output per action; the weights of each action are looked up by its name."""

    def __init__(self, spec: WorldSpec, vocabulary: Vocabulary, in_features: int):
        super().__init__()
        # With small weights, a new policy is close to uniform.
        initial = linear(in_features, len(vocabulary.actions), gain=0.01)
        self.weight, self.bias = initial.weight, initial.bias
        self.adapt(spec, vocabulary)

    def adapt(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        super().adapt(spec, vocabulary)
        self.weight = grow(self.weight, len(vocabulary.actions))
        self.bias = grow(self.bias, len(vocabulary.actions))

    def forward(self, h: Tensor) -> Tensor:
        """Return the scores [N, A] for h [N, in_features]."""
        return F.linear(h, self.weight[self.rows], self.bias[self.rows])
