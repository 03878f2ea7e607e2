"""Components that read what the world shows: tokens as a grid, tokens as a set, or plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pydantic import Field
from torch import Tensor

from holdfast.policies.components.component import Component, Entry, Params, Place, Shape, WiringError, initialize
from holdfast.policies.components.layers import Size
from holdfast.policies.parts import attention
from holdfast.policies.parts.attention import TokenFeatures
from holdfast.policies.parts.normalizer import RunningNorm
from holdfast.policies.parts.token_conv import OwnLinear
from holdfast.policies.parts.tokens import PlacedTokens, TokenGrid, TokenSet, pick
from holdfast.spec import BoxObs, TokenObs


class TokenSource(Component):
    """Reads the world itself, so it has no sources."""

    reads = ()

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        if not isinstance(place.spec.obs, TokenObs):
            raise WiringError(f"it reads grid-world tokens, and {place.spec.name} has none. Use py_agent=box there")
        self.layer = TokenGrid(place.spec, place.vocabulary)


class ObsTokenToBoxShaper(TokenSource):
    """Tokens as a grid: a channel per feature and per category, a cell per place around the agent."""

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        self.out = Shape("token grid", (self.layer.num_channels, self.layer.side, self.layer.side))

    def forward(self, obs: Tensor) -> PlacedTokens:
        return self.layer(obs, normalized=False)


class ObsTokenPadStrip(TokenSource):
    """Tokens as a set, without the padding behind them."""

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        self.out = Shape("tokens", (self.layer.num_channels, self.layer.side))

    def forward(self, obs: Tensor) -> TokenSet:
        return self.layer.side_by_side(obs, normalized=False)


class Normalized(Component):
    """Amounts divided by the scale of their channel."""

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        self.layer = TokenGrid(place.spec, place.vocabulary)  # for its table, which follows the world
        self.out = inputs[0]


class ObservationNormalizer(Normalized):
    reads = (("token grid",),)

    def forward(self, tokens: PlacedTokens) -> PlacedTokens:
        return tokens._replace(weight=pick(self.layer.weight, tokens.entry))


class ObsAttrValNorm(Normalized):
    reads = (("tokens",),)

    def forward(self, tokens: TokenSet) -> TokenSet:
        return tokens._replace(weight=pick(self.layer.weight, tokens.entry).where(tokens.real, 0.0))


class ObsAttrEmbedFourier(Component):
    """A token as [what it says | sines and cosines of where | how much]."""

    reads = (("tokens",),)

    class Params(Params):
        attr_embed_dim: Size = 10
        num_freqs: Size = Field(default=4, le=16)

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        num_channels, side = inputs[0].sizes
        self.layer = attention.FourierEmbedding(num_channels, side, params.attr_embed_dim, params.num_freqs)
        self.out = Shape("token features", (self.layer.out_features,))

    def forward(self, tokens: TokenSet) -> TokenFeatures:
        return self.layer(tokens)


class ObsAttrCoordEmbed(Component):
    """A token as [what it says + a learned vector of where | how much]."""

    reads = (("tokens",),)

    class Params(Params):
        attr_embed_dim: Size = 12

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        num_channels, side = inputs[0].sizes
        self.layer = attention.CoordinateEmbedding(num_channels, side, params.attr_embed_dim)
        self.out = Shape("token features", (self.layer.out_features,))

    def forward(self, tokens: TokenSet) -> TokenFeatures:
        return self.layer(tokens)


class ObsLatentAttn(Component):
    """Learned queries gather what matters from any number of tokens; one query gives a vector, several give vectors."""

    reads = (("token features",),)

    class Params(Params):
        out_features: Size
        num_queries: Size = 10
        query_dim: Size = 32
        num_layers: Size = 3
        num_heads: Size = 8

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        p = params
        need_whole_heads(p.query_dim, p.num_heads)
        self.layer = attention.LatentAttention(
            inputs[0].sizes[0], p.num_queries, p.query_dim, p.num_layers, p.num_heads, p.out_features
        )
        one = p.num_queries == 1
        self.out = Shape("vector", (p.out_features,)) if one else Shape("vectors", (p.num_queries, p.out_features))

    def forward(self, tokens: TokenFeatures) -> Tensor:
        return self.layer(tokens)


class ObsSelfAttn(Component):
    """Vectors, or tokens, look at each other; a class token sums them up."""

    reads = (("vectors", "token features"),)

    class Params(Params):
        out_features: Size
        num_layers: Size = 3
        num_heads: Size = 8
        use_cls_token: bool = True

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        p = params
        need_whole_heads(inputs[0].sizes[-1], p.num_heads)
        self.layer = attention.SelfAttention(
            inputs[0].sizes[-1], p.num_layers, p.num_heads, p.out_features, p.use_cls_token
        )
        if p.use_cls_token:
            self.out = Shape("vector", (p.out_features,))
        elif inputs[0].kind == "vectors":
            self.out = Shape("vectors", (inputs[0].sizes[0], p.out_features))
        else:
            raise WiringError("over tokens it needs use_cls_token: true, since their number changes")

    def forward(self, x: Tensor | TokenFeatures) -> Tensor:
        return self.layer(*x) if isinstance(x, TokenFeatures) else self.layer(x)


def need_whole_heads(width: int, num_heads: int) -> None:
    if width % num_heads:
        raise WiringError(f"{num_heads} heads do not divide a width of {width}")


class ObsOwnLinear(Component):
    """A linear layer over what the agent is and has: the tokens of its own cell."""

    reads = (("token grid",),)
    has_weights = True

    class Params(Params):
        out_features: Size

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        num_channels, side, _ = inputs[0].sizes
        self.layer = OwnLinear(num_channels, side, params.out_features)
        initialize(self.layer.weight, self.layer.bias, entry, 1.0)
        self.out = Shape("vector", (params.out_features,))

    def forward(self, tokens: PlacedTokens) -> Tensor:
        return self.activate(self.layer(tokens))


class ObsVector(Component):
    """The numbers a Gymnasium or PettingZoo world shows, in one vector, normalised as they come in."""

    reads = ()

    class Params(Params):
        normalize: bool = True

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        obs = place.spec.obs
        if not isinstance(obs, BoxObs):
            raise WiringError(f"it reads arrays of numbers, and {place.spec.name} has {type(obs).__name__}")
        size = math.prod(obs.shape)
        self.layer = RunningNorm(size) if params.normalize else None
        self.out = Shape("vector", (size,))

    def forward(self, obs: Tensor) -> Tensor:
        x = obs.flatten(1).float()
        return x if self.layer is None else self.layer(x)

    def absorb(self, obs: Tensor) -> None:
        if self.layer is not None:
            self.layer.update(obs.flatten(1).float())
