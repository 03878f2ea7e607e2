"""What a component is: a named step of an agent that reads its sources and writes its own name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from holdfast.policies.parts.layers import activate
from holdfast.policies.vocabulary import Vocabulary
from holdfast.spec import WorldSpec


class Params(BaseModel):
    """`nn_params` of a component: typed, with limits; anything else is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Entry(BaseModel):
    """One component as the YAML file has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str
    sources: list[str] = []
    nn_params: dict[str, Any] = {}
    nonlinearity: Literal["relu", "tanh", "silu"] | None = None
    initialization: Literal["orthogonal", "xavier", "small"] | None = None
    clip_scale: float = Field(default=1.0, ge=0.0, le=1e6)
    l2_init_scale: float = Field(default=1.0, ge=0.0, le=1e6)


# vector [N, F] | vectors [N, S, F] | grid [N, C, H, W] | token grid: the same as PlacedTokens |
# tokens: a TokenSet | token features: TokenFeatures, F wide | embeddings [A, E], one per action
Kind = Literal["vector", "vectors", "grid", "token grid", "tokens", "token features", "embeddings"]


@dataclass(frozen=True)
class Shape:
    """What travels between components, and how wide it is. Sizes are those behind the axis of rows."""

    kind: Kind
    sizes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {list(self.sizes)}" if self.sizes else self.kind


@dataclass(frozen=True)
class Place:
    """Where a component stands: the world, and what the policy knows of it."""

    spec: WorldSpec
    vocabulary: Vocabulary


class WiringError(Exception):
    """A component cannot be built from what it is given; the message goes behind its name."""


class Component(nn.Module):
    """Subclasses build their parts in `__init__`, set `self.out`, and compute rows in `forward`.

    Rows must not look at each other. The module with the weights is called `layer`, so that its weights have the names
    they have in the plain family.
    """

    Params: ClassVar[type[Params]] = Params
    reads: ClassVar[tuple[tuple[Kind, ...], ...]] = (("vector",),)  # kinds each source may be, in order
    reads_more: ClassVar[bool] = False  # any number of sources like the last one
    has_weights: ClassVar[bool] = False  # takes `nonlinearity` and `initialization`
    out: Shape

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__()
        self.entry = entry

    def activate(self, x: Tensor) -> Tensor:
        return activate(x, self.entry.nonlinearity)

    def absorb(self, obs: Tensor) -> None:
        """Move what may move between batches only (observations [N, ...]), so that what is replayed is what was lived."""


@torch.no_grad()
def initialize(weight: Tensor, bias: Tensor | None, entry: Entry, gain: float) -> None:
    """Orthogonal with this gain unless the file says otherwise; biases 0."""
    match entry.initialization:
        case "xavier":
            nn.init.xavier_uniform_(weight)
        case "small":
            nn.init.orthogonal_(weight, 0.01)
        case _:
            nn.init.orthogonal_(weight, gain)
    if bias is not None:
        bias.zero_()
