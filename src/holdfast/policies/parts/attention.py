"""Attention over the tokens of an observation: embeddings, latent queries, self-attention."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.policies.parts.layers import linear
from holdfast.policies.parts.tokens import TokenSet
from holdfast.policies.vocabulary import Adaptive, Vocabulary, grow
from holdfast.spec import WorldSpec

MASKED_OUT = -1e9  # attention score of padding; finite, so that an observation without tokens gives no NaN


class TokenFeatures(NamedTuple):
    """One vector per token: `x` [N, K, F], which is zero where `real` [N, K] is false (padding)."""

    x: Tensor
    real: Tensor


class AttributeEmbedding(Adaptive):
    """One learned vector per channel, initialised at the scale of the position features so that neither dominates."""

    def __init__(self, num_channels: int, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_channels, size))

    def adapt(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        self.weight = grow(self.weight, len(vocabulary.channels))

    def forward(self, channel: Tensor) -> Tensor:
        return F.embedding(channel, self.weight)


class FourierEmbedding(nn.Module):
    """Embed each token as [attribute embedding | sines and cosines of its position | weight].

    Positions are relative to the agent, so they do not depend on the window size. The lowest frequency has a period of 20
    cells, more than the widest window, so every cell has a unique encoding.
    """

    def __init__(self, num_channels: int, side: int, attr_embed_dim: int, num_freqs: int):
        super().__init__()
        self.attribute = AttributeEmbedding(num_channels, attr_embed_dim)
        offset = (torch.arange(side) - side // 2) / 10.0
        angles = offset[:, None] * math.pi * 2.0 ** torch.arange(num_freqs)  # [side, num_freqs]
        waves = torch.cat([angles.sin(), angles.cos()], 1)
        row, column = waves.repeat_interleave(side, 0), waves.repeat(side, 1)
        self.waves = nn.Buffer(torch.cat([row, column], 1), persistent=False)  # [cells, 4 * num_freqs]
        self.out_features = attr_embed_dim + 4 * num_freqs + 1

    def forward(self, tokens: TokenSet) -> TokenFeatures:
        position = F.embedding(tokens.cell, self.waves)
        x = torch.cat([self.attribute(tokens.channel), position, tokens.weight.unsqueeze(-1)], -1)
        return TokenFeatures(x * tokens.real.unsqueeze(-1), tokens.real)


class CoordinateEmbedding(nn.Module):
    """Embed each token as [attribute embedding + learned embedding of its cell | weight]."""

    def __init__(self, num_channels: int, side: int, attr_embed_dim: int):
        super().__init__()
        self.attribute = AttributeEmbedding(num_channels, attr_embed_dim)
        self.place = nn.Parameter(torch.randn(side * side, attr_embed_dim) * attr_embed_dim**-0.5)
        self.out_features = attr_embed_dim + 1

    def forward(self, tokens: TokenSet) -> TokenFeatures:
        embedded = self.attribute(tokens.channel) + F.embedding(tokens.cell, self.place)
        x = torch.cat([embedded, tokens.weight.unsqueeze(-1)], -1)
        return TokenFeatures(x * tokens.real.unsqueeze(-1), tokens.real)


class Attention(nn.Module):
    """Multi-head attention: queries [N, Q, D] attend to x [N, K, F]; the output is [N, Q, D]."""

    def __init__(self, query_dim: int, in_features: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(query_dim, query_dim, bias=False)
        self.key_value = nn.Linear(in_features, 2 * query_dim, bias=False)
        for weight in (self.query.weight, *self.key_value.weight.chunk(2)):
            nn.init.orthogonal_(weight)
        self.out = linear(query_dim, query_dim)

    def forward(self, queries: Tensor, x: Tensor, real: Tensor | None) -> Tensor:
        q = self._by_head(self.query(queries))  # [N or 1, heads, Q, d]
        k, v = (self._by_head(part) for part in self.key_value(x).chunk(2, -1))
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if real is not None:
            scores = scores.masked_fill(~real[:, None, None, :], MASKED_OUT)
        attended = scores.softmax(-1) @ v
        return self.out(attended.transpose(1, 2).flatten(2))

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class AttentionBlock(nn.Module):
    """An attention layer and an MLP, each with a residual connection around it and a LayerNorm before it."""

    def __init__(self, query_dim: int, in_features: int | None, num_heads: int):
        super().__init__()
        self.norm_query = nn.LayerNorm(query_dim)
        self.norm_x = nn.LayerNorm(in_features) if in_features is not None else None  # None: self-attention
        self.attention = Attention(query_dim, in_features or query_dim, num_heads)
        self.norm_mlp = nn.LayerNorm(query_dim)
        self.mlp = nn.Sequential(linear(query_dim, 2 * query_dim), nn.ReLU(), linear(2 * query_dim, query_dim))

    def forward(self, queries: Tensor, x: Tensor | None, real: Tensor | None) -> Tensor:
        normed = self.norm_query(queries)
        attended = normed if self.norm_x is None else self.norm_x(x)
        queries = queries + self.attention(normed, attended, real)
        return queries + self.mlp(self.norm_mlp(queries))


class LatentAttention(nn.Module):
    """A fixed number of learned queries attend to any number of tokens."""

    def __init__(
        self, in_features: int, num_queries: int, query_dim: int, num_layers: int, num_heads: int, out_features: int
    ):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(num_queries, query_dim) * query_dim**-0.5)
        self.blocks = nn.ModuleList(AttentionBlock(query_dim, in_features, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(query_dim)
        self.out = linear(query_dim, out_features)

    def forward(self, tokens: TokenFeatures) -> Tensor:
        """Return [N, out_features] for one query, [N, num_queries, out_features] for several queries."""
        x = self.queries.unsqueeze(0)
        for block in self.blocks:
            x = block(x, tokens.x, tokens.real)
        x = self.out(self.norm(x))
        return x.squeeze(1) if len(self.queries) == 1 else x


class SelfAttention(nn.Module):
    """Self-attention over vectors [N, S, D]. With a class token, the output is one vector that summarises them."""

    def __init__(self, in_features: int, num_layers: int, num_heads: int, out_features: int, use_cls_token: bool):
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(in_features) * in_features**-0.5) if use_cls_token else None
        self.blocks = nn.ModuleList(AttentionBlock(in_features, None, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(in_features)
        self.out = linear(in_features, out_features)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Return [N, out_features] with a class token, [N, S, out_features] without; x is [N, S, D]."""
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], 1, -1), x], 1)
            real = None if real is None else F.pad(real, (1, 0), value=True)
        for block in self.blocks:
            x = block(x, None, real)
        x = self.norm(x if self.cls_token is None else x[:, 0])
        return self.out(x)
