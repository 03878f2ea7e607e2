"""The first version's formulation of Fast, kept only to be measured against: a dense box and a repeated bilinear head."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.policies import Fast
from holdfast.policies.tokens import NO_TOKEN
from holdfast.spec import TokenObs, WorldSpec


class FirstVersionFast(Fast):
    """One dense channel per feature id, and `h` repeated for every action before the product with W."""

    def __init__(self, spec: WorldSpec):
        super().__init__(spec)
        assert isinstance(spec.obs, TokenObs)
        self.num_layers_in_box = max(f.id for f in spec.obs.features) + 1
        self.conv1 = nn.Conv2d(self.num_layers_in_box, 64, 5, 3)
        norms = torch.ones(self.num_layers_in_box)
        for feature in spec.obs.features:
            norms[feature.id] = feature.normalization
        self.register_buffer("norms", norms.view(1, -1, 1, 1))

    norms: Tensor

    def encode_observations(self, observations: Tensor) -> Tensor:
        N, L = observations.shape[0], self.num_layers_in_box
        coordinate, attribute, value = observations.long().unbind(-1)
        row, column = coordinate >> 4, coordinate & 15
        valid = (coordinate != NO_TOKEN) & (attribute < L) & (row < 11) & (column < 11)
        index = (attribute * 121 + row * 11 + column).where(valid, L * 121)
        box = torch.zeros(N, L * 121 + 1)
        box.scatter_(1, index, value.float())
        box = box[:, :-1].view(N, L, 11, 11) / self.norms
        x = F.relu(self.conv1(box))
        x = F.relu(self.conv2(x)).flatten(1)
        return F.relu(self.encoder2(F.relu(self.encoder1(x))))

    def decode_actions(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        values = self.critic2(torch.tanh(self.critic1(hidden))).squeeze(-1)
        h = F.relu(self.actor1(hidden))
        N, A = h.shape[0], self.num_actions
        repeated = h.unsqueeze(1).expand(-1, A, -1).reshape(N * A, -1)
        embeddings = self.action_embeddings.weight[:A].unsqueeze(0).expand(N, -1, -1).reshape(N * A, -1)
        query = torch.tanh(torch.einsum("nh,khe->nke", repeated, self.actor2.W.unsqueeze(0)))
        scores = torch.einsum("nke,ne->nk", query, embeddings) + self.actor2.bias
        return scores.view(N, A), values
