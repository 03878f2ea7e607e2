"""The first version's implementation of Fast, kept only for comparison: a dense box and a repeated bilinear head."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.policies import Fast
from holdfast.policies.parts.tokens import NO_TOKEN


class FirstVersionFast(Fast):
    """Same function and weights as Fast. Tokens are scattered into [N, channels, 11, 11] before the convolution, and `h` is
    repeated for every action before the product with W."""

    def encode_observations(self, observations: Tensor) -> Tensor:
        N, C, cells = observations.shape[0], self.obs.num_channels, self.obs.side**2
        coordinate, attribute, value = observations.long().unbind(-1)
        entry = attribute * 256 + value
        cell, channel = self.obs.cell[coordinate], self.obs.channel[entry]
        valid = (coordinate != NO_TOKEN) & (cell >= 0) & (channel >= 0)
        index = (channel * cells + cell).where(valid, C * cells)
        box = torch.zeros(N, C * cells + 1, dtype=self.obs.weight.dtype)
        box.scatter_(1, index, self.obs.weight[entry])
        box = box[:, :-1].view(N, C, self.obs.side, self.obs.side)
        x = F.relu(F.conv2d(box, self.cnn1.weight, self.cnn1.bias, stride=3))
        x = F.relu(F.conv2d(x, self.cnn2.weight, self.cnn2.bias)).flatten(1)
        return F.relu(self.encoded_obs(F.relu(self.fc1(x))))

    def decode_actions(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        values = self.value(torch.tanh(self.critic_1(hidden))).squeeze(-1)
        h = F.relu(self.actor_1(hidden))
        embeds = self.action_embeds()
        N, A = h.shape[0], len(embeds)
        repeated = h.unsqueeze(1).expand(-1, A, -1).reshape(N * A, -1)
        embeddings = embeds.unsqueeze(0).expand(N, -1, -1).reshape(N * A, -1)
        query = torch.tanh(torch.einsum("nh,khe->nke", repeated, self.action.W.unsqueeze(0)))
        scores = torch.einsum("nke,ne->nk", query, embeddings) + self.action.bias
        return scores.view(N, A), values
