"""Component: a named step of an agent that reads its sources and writes its own name."""

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

Size = Annotated[int, Field(ge=1, le=65536, strict=True)]  # strict: true is not 1


class Params(Section):
    """`nn_params` of a component."""


class Entry(Section):
    """One component as written in the YAML file."""

    type: str
    sources: list[str] = Field(default=[])
    nn_params: dict[str, Any] = Field(default={})
    nonlinearity: Literal["relu", "tanh", "silu"] | None = None
    initialization: Literal["orthogonal", "xavier", "small"] | None = None
    clip_scale: float = Field(default=1.0, ge=0.0, le=1e6)
    l2_init_scale: float = Field(default=1.0, ge=0.0, le=1e6)


# vector [N, F] | vectors [N, S, F] | grid [N, C, H, W] | token grid: the same as PlacedTokens |
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
    """What components are built for: a world, and the policy's vocabulary."""

    spec: WorldSpec
    vocabulary: Vocabulary


class WiringError(Exception):
    """A component cannot be built from its inputs. The message is a sentence, printed after the component's name."""


REGISTERED: dict[str, type[Component]] = {}  # by class name


class Component(nn.Module):
    """Base class: subclasses create their layers in `build` and return the shape of their output.

    Rows must not depend on each other. The module with the weights is `self.layer`, so that weights have the same names
    as in the plain family.
    """

    Params: ClassVar[type[Params]] = Params
    reads: ClassVar[tuple[tuple[Kind, ...], ...]] = (("vector",),)  # accepted kinds of each source, in order
    reads_more: ClassVar[bool] = False  # any number of further sources like the last one
    has_weights: ClassVar[bool] = False  # accepts `nonlinearity` and `initialization`
    layer: Any

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        """Register the class under its name, which is its `type` in an agent's file."""
        super().__init_subclass__(**kwargs)
        if abstract:
            return
        if REGISTERED.get(cls.__name__, cls).__module__ != cls.__module__:
            raise TypeError(f"there is already a component {cls.__name__}; choose another class name")
        REGISTERED[cls.__name__] = cls

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], context: BuildContext):
        super().__init__()
        self.entry = entry
        self.out = self.build(params, inputs, context)

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        """Create the layers for inputs of these shapes; raise WiringError if they do not fit."""
        raise NotImplementedError

    def apply_layer(self, *sources: Any) -> Any:
        """Outputs of the sources [N, ...] -> output [N, ...]."""
        return activate(self.layer(*sources), self.entry.nonlinearity)

    forward: Callable[..., Any] = apply_layer  # typed as in nn.Module, so that subclasses choose their arguments

    def absorb(self, obs: Tensor) -> None:
        """Update statistics from observations [N, ...]. Called only between batches, so that replay parity holds."""

    @torch.no_grad()
    def initialize(self, gain: float = 1.0) -> None:
        """Initialise the layer: as the file says, or orthogonal with this gain. Biases are 0."""
        match self.entry.initialization:
            case "xavier":
                nn.init.xavier_uniform_(self.layer.weight)
            case "small":
                nn.init.orthogonal_(self.layer.weight, 0.01)
            case _:
                nn.init.orthogonal_(self.layer.weight, gain)
        nn.init.zeros_(self.layer.bias)
