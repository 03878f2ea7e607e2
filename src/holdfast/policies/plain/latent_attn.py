"""Agents that read tokens as a set: learned queries attend to any number of tokens, in any order."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from holdfast.config.registry import AGENTS
from holdfast.policies.parts.attention import FourierEmbedding, LatentAttention, SelfAttention
from holdfast.policies.plain.grid_agent import GridAgent
from holdfast.spec import WorldSpec


@AGENTS.register("latent_attn_tiny")
class LatentAttnTiny(GridAgent):
    """One learned query attends to the tokens; its output is the encoded observation."""

    def __init__(self, spec: WorldSpec, **options: Any):
        super().__init__(spec, **options)
        self.embed = FourierEmbedding(self.obs.num_channels, self.obs.side, attr_embed_dim=10, num_freqs=4)
        self.encoded_obs = LatentAttention(
            self.embed.out_features, num_queries=1, query_dim=32, num_layers=2, num_heads=4, out_features=128
        )

    def encode_observations(self, observations: Tensor) -> Tensor:
        return self.encoded_obs(self.embed(self.obs.side_by_side(observations)))


@AGENTS.register("latent_attn_small")
class LatentAttnSmall(GridAgent):
    """Ten learned queries attend to the tokens, then to each other."""

    attr_embed_dim = 8
    num_heads = 4
    latent_layers = 1
    self_layers = 2

    def __init__(self, spec: WorldSpec, **options: Any):
        super().__init__(spec, **options)
        self.embed = FourierEmbedding(self.obs.num_channels, self.obs.side, self.attr_embed_dim, num_freqs=8)
        sizes = {"num_queries": 10, "query_dim": 32, "num_layers": self.latent_layers, "num_heads": self.num_heads}
        self.latents = LatentAttention(self.embed.out_features, **sizes, out_features=32)
        self.encoded_obs = SelfAttention(32, self.self_layers, self.num_heads, out_features=128, use_cls_token=True)

    def encode_observations(self, observations: Tensor) -> Tensor:
        return self.encoded_obs(self.latents(self.embed(self.obs.side_by_side(observations))))


@AGENTS.register("latent_attn_med")
class LatentAttnMed(LatentAttnSmall):
    """LatentAttnSmall with larger embeddings, more layers and more attention heads."""

    attr_embed_dim = 12
    num_heads = 8
    latent_layers = 3
    self_layers = 3
