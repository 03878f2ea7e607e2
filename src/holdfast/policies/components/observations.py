"""Components that read observations: as a grid of tokens, as a set of tokens, or as a vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from holdfast.policies.components.component import BuildContext, Component, Params, Shape, Size, WiringError
from holdfast.policies.parts import attention
from holdfast.policies.parts.attention import TokenFeatures
from holdfast.policies.parts.layers import RunningNorm
from holdfast.policies.parts.token_conv import OwnLinear
from holdfast.policies.parts.tokens import PlacedTokens, TokenGrid, TokenSet, pick
from holdfast.spec import BoxObs


class ObsTokenToBoxShaper(Component):
    """Place tokens on a grid: one channel per feature or category, one cell per position around the agent."""

    reads = ()

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        self.layer = TokenGrid(*context)
        return Shape("token grid", (self.layer.num_channels, self.layer.side, self.layer.side))

    def forward(self, obs: Tensor) -> PlacedTokens:
        return self.layer(obs, normalized=False)


class ObsTokenPadStrip(Component):
    """Read tokens as a set and strip the padding."""

    reads = ()

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        self.layer = TokenGrid(*context)
        return Shape("tokens", (self.layer.num_channels, self.layer.side))

    def forward(self, obs: Tensor) -> TokenSet:
        return self.layer.side_by_side(obs, normalized=False)


class ObservationNormalizer(Component):
    """For tokens on a grid: divide each token's amount by the scale of its channel."""

    reads = (("token grid",),)

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        self.layer = TokenGrid(*context)  # for the table of scales in TokenGrid
        return inputs[0]

    def forward(self, tokens: PlacedTokens | TokenSet) -> PlacedTokens | TokenSet:
        weight = pick(self.layer.weight, tokens.entry)
        return tokens._replace(weight=weight.where(tokens.real, 0.0) if isinstance(tokens, TokenSet) else weight)


class ObsAttrValNorm(ObservationNormalizer):
    """For tokens as a set: divide each token's amount by the scale of its channel."""

    reads = (("tokens",),)


class TokenEmbedding(Component, abstract=True):
    """Base class of components that embed each token as a vector, with the module class `embedding`."""

    reads = (("tokens",),)
    embedding: ClassVar[type[nn.Module]]

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        num_channels, side = inputs[0].sizes
        self.layer = self.embedding(num_channels, side, **params.model_dump())
        return Shape("token features", (self.layer.out_features,))


class ObsAttrEmbedFourier(TokenEmbedding):
    """Embed each token as [attribute embedding | sines and cosines of its position | amount]."""

    embedding = attention.FourierEmbedding

    class Params(Params):
        attr_embed_dim: Size = 10
        num_freqs: Size = Field(default=4, le=16)


class ObsAttrCoordEmbed(TokenEmbedding):
    """Embed each token as [attribute embedding + learned position embedding | amount]."""

    embedding = attention.CoordinateEmbedding

    class Params(Params):
        attr_embed_dim: Size = 12


class ObsLatentAttn(Component):
    """Learned queries attend to any number of tokens. The output is one vector per query."""

    reads = (("token features",),)

    class Params(Params):
        out_features: Size
        num_queries: Size = 10
        query_dim: Size = 32
        num_layers: Size = 3
        num_heads: Size = 8

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        check_heads(params.query_dim, params.num_heads)
        self.layer = attention.LatentAttention(inputs[0].sizes[0], **params.model_dump())
        if params.num_queries == 1:
            return Shape("vector", (params.out_features,))
        return Shape("vectors", (params.num_queries, params.out_features))


class ObsSelfAttn(Component):
    """Self-attention over vectors or tokens. The output is one vector with a class token, one per input without it."""

    reads = (("vectors", "token features"),)

    class Params(Params):
        out_features: Size
        num_layers: Size = 3
        num_heads: Size = 8
        use_cls_token: bool = True

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        *others, width = inputs[0].sizes
        check_heads(width, params.num_heads)
        self.layer = attention.SelfAttention(width, **params.model_dump())
        if params.use_cls_token:
            return Shape("vector", (params.out_features,))
        if inputs[0].kind == "token features":
            raise WiringError("the source is a set of tokens, whose number varies. Set use_cls_token: true.")
        return Shape("vectors", (*others, params.out_features))

    def forward(self, x: Tensor | TokenFeatures) -> Tensor:
        return self.layer(*x) if isinstance(x, TokenFeatures) else self.layer(x)


def check_heads(width: int, num_heads: int) -> None:
    if width % num_heads:
        raise WiringError(f"num_heads={num_heads} does not divide the width {width}. Choose a divisor of {width}.")


class ObsOwnLinear(Component):
    """A linear layer over the tokens in the agent's cell."""

    reads = (("token grid",),)
    has_weights = True

    class Params(Params):
        out_features: Size

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        num_channels, side, _ = inputs[0].sizes
        self.layer = OwnLinear(num_channels, side, params.out_features)
        self.initialize()
        return Shape("vector", (params.out_features,))


class ObsVector(Component):
    """Flatten a Gymnasium or PettingZoo observation to one vector, normalised by its running mean and variance."""

    reads = ()

    class Params(Params):
        normalize: bool = True

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        obs = context.spec.obs
        if not isinstance(obs, BoxObs) or any(part.sizes for part in obs.parts):
            given = "integer codes" if isinstance(obs, BoxObs) else type(obs).__name__
            raise WiringError(
                f"reads arrays of numbers (BoxObs), but {context.spec.name} has {given}. Use py_agent=box for this world."
            )
        size = math.prod(obs.shape)
        self.layer = RunningNorm(size) if params.normalize else None
        return Shape("vector", (size,))

    def forward(self, obs: Tensor) -> Tensor:
        x = obs.flatten(1).float()
        return x if self.layer is None else self.layer(x)

    def absorb(self, obs: Tensor) -> None:
        if self.layer is not None:
            self.layer.update(obs.flatten(1).float())
