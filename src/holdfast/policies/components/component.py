"""Component: a named node of an agent's graph. It reads the outputs of its sources and computes one output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from holdfast.config.sections import Section
from holdfast.policies.parts.layers import activate
from holdfast.policies.vocabulary import Vocabulary
from holdfast.spec import WorldSpec

Size = Annotated[int, Field(ge=1, le=65536, strict=True)]  # strict, so that `true` is not read as 1


class Params(Section):
    """Base class for the `nn_params` of a component."""


class Entry(Section):
    """One component as written in the YAML file."""

    type: str
    sources: list[str] = Field(default=[])
    nn_params: dict[str, Any] = Field(default={})
    nonlinearity: Literal["relu", "tanh", "silu"] | None = None
    initialization: Literal["orthogonal", "xavier", "small"] | None = None
    clip_scale: float = Field(default=1.0, ge=0.0, le=1e6)
    l2_init_scale: float = Field(default=1.0, ge=0.0, le=1e6)


# vector [N, F] | vectors [N, S, F] | grid [N, C, H, W] | token grid: a grid stored as PlacedTokens |
# tokens: a TokenSet | token features: TokenFeatures, F wide | embeddings [A, E], one per action
Kind = Literal["vector", "vectors", "grid", "token grid", "tokens", "token features", "embeddings"]


@dataclass(frozen=True)
class Shape:
    """Kind and sizes of a component's output, without the batch axis."""

    kind: Kind
    sizes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {list(self.sizes)}" if self.sizes else self.kind


class BuildContext(NamedTuple):
    """What a component is built for: the world's spec and the policy's vocabulary."""

    spec: WorldSpec
    vocabulary: Vocabulary


class WiringError(Exception):
    """Raised if a component cannot be built. The message is printed after the component's name."""


REGISTERED: dict[str, type[Component]] = {}  # by class name


class Component(nn.Module):
    """Base class of components. A subclass implements `build`, which creates the layers and returns the output's shape.

    The output for one row must not depend on the other rows. The module with the weights must be named `self.layer`, so
    that weights have the same names as in the plain family.
    """

    Params: ClassVar[type[Params]] = Params
    reads: ClassVar[tuple[tuple[Kind, ...], ...]] = (("vector",),)  # the kinds accepted for each source, in order
    reads_more: ClassVar[bool] = False  # accepts further sources, of the same kinds as the last one
    has_weights: ClassVar[bool] = False  # accepts `nonlinearity` and `initialization`
    layer: Any

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        """Register the class under its class name, which agent files use as `type`."""
        super().__init_subclass__(**kwargs)
        if abstract:
            return
        if REGISTERED.get(cls.__name__, cls).__module__ != cls.__module__:
            raise TypeError(f"a component named {cls.__name__} is already registered; choose another class name")
        REGISTERED[cls.__name__] = cls

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], context: BuildContext):
        super().__init__()
        self.entry = entry
        self.out = self.build(params, inputs, context)

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        """Create the layers and return the output shape; raise WiringError if the component cannot read `inputs`."""
        raise NotImplementedError

    def apply_layer(self, *sources: Any) -> Any:
        """Apply the layer and the nonlinearity to the sources' outputs [N, ...]; return [N, ...]."""
        return activate(self.layer(*sources), self.entry.nonlinearity)

    forward: Callable[..., Any] = apply_layer  # typed as in nn.Module, so that subclasses may take other arguments

    def absorb(self, obs: Tensor) -> None:
        """Update statistics from observations [N, ...]. Called only between batches, so that replay is exact."""

    @torch.no_grad()
    def initialize(self, gain: float = 1.0) -> None:
        """Initialise weights as set by `initialization`, or orthogonally with this gain if not set; biases are 0."""
        match self.entry.initialization:
            case "xavier":
                nn.init.xavier_uniform_(self.layer.weight)
            case "small":
                nn.init.orthogonal_(self.layer.weight, 0.01)
            case _:
                nn.init.orthogonal_(self.layer.weight, gain)
        nn.init.zeros_(self.layer.bias)
