"""Components that transform vectors and grids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.policies.components.component import BuildContext, Component, Params, Shape, Size, WiringError
from holdfast.policies.parts import layers as parts
from holdfast.policies.parts.token_conv import TokenConv2d


class Linear(Component):
    """A linear layer."""

    reads = (("vector", "vectors"),)
    has_weights = True

    class Params(Params):
        out_features: Size

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        *others, in_features = inputs[0].sizes
        self.layer = parts.Linear(in_features, params.out_features)
        self.initialize(math.sqrt(2.0) if self.entry.nonlinearity == "tanh" else 1.0)
        return Shape(inputs[0].kind, (*others, params.out_features))


class Conv2d(Component):
    """A convolution. For a token grid, it is computed from the tokens without building the dense grid."""

    reads = (("grid", "token grid"),)
    has_weights = True

    class Params(Params):
        out_channels: Size
        kernel_size: Size
        stride: Size = 1

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        channels, height, width = inputs[0].sizes
        kernel, stride = params.kernel_size, params.stride
        if kernel > min(height, width):
            raise WiringError(f"kernel {kernel} does not fit into a grid of {height} x {width}. Reduce kernel_size.")
        if inputs[0].kind == "token grid":
            if stride > kernel or (height - kernel) % stride:
                raise WiringError(
                    f"kernel {kernel}, stride {stride} would skip cells of the {height} x {width} grid. "
                    "Change kernel_size or stride."
                )
            self.layer = TokenConv2d(channels, height, params.out_channels, kernel, stride)
        else:
            self.layer = parts.Conv2d(channels, params.out_channels, kernel, stride)
        self.initialize()
        return Shape("grid", (params.out_channels, (height - kernel) // stride + 1, (width - kernel) // stride + 1))


class Flatten(Component):
    """Flatten the input [N, ...] to one vector per row [N, F]."""

    reads = (("vector", "vectors", "grid"),)

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        return Shape("vector", (math.prod(inputs[0].sizes),))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


class SameShape(Component, abstract=True):
    """Base class of components that have one source and an output of the same shape."""

    reads = (("vector", "vectors", "grid"),)

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        return inputs[0]


class Identity(SameShape):
    forward = staticmethod(lambda x: x)


class ReLU(SameShape):
    forward = staticmethod(F.relu)


class Tanh(SameShape):
    forward = staticmethod(torch.tanh)


class SiLU(SameShape):
    forward = staticmethod(F.silu)


class LayerNorm(Component):
    """Normalise each vector to zero mean and unit variance, then apply a learned scale and shift."""

    reads = (("vector", "vectors"),)

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        self.layer = nn.LayerNorm(inputs[0].sizes[-1])
        return inputs[0]


class Dropout(Component):
    """Keep one dropout mask from collecting a batch to the end of its updates; drop nothing in evaluation.

    With a new mask at every call, learning could not replay what the policy computed while acting.
    """

    class Params(Params):
        p: float = Field(default=0.1, ge=0.0, lt=1.0)

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        self.p = params.p
        self.kept = nn.Buffer(torch.ones(inputs[0].sizes))
        self.draw()
        return inputs[0]

    def absorb(self, obs: Tensor) -> None:
        self.draw()

    def draw(self) -> None:
        """Draw a new dropout mask."""
        self.kept.copy_((torch.rand(self.kept.shape) >= self.p).float() / (1.0 - self.p))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.kept if self.training else x


class ResidualMLP(Component):
    """Residual blocks: each of `num_layers` blocks computes x + MLP(LayerNorm(x))."""

    class Params(Params):
        num_layers: Size = 1
        hidden_features: Size = 128

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        width = inputs[0].sizes[0]
        self.layer = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                parts.linear(width, params.hidden_features),
                nn.ReLU(),
                parts.linear(params.hidden_features, width),
            )
            for _ in range(params.num_layers)
        )
        return inputs[0]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.layer:
            x = x + block(x)
        return x


class Concat(Component):
    """Concatenate vectors."""

    reads_more = True

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        return Shape("vector", (sum(shape.sizes[0] for shape in inputs),))

    def forward(self, *xs: Tensor) -> Tensor:
        return torch.cat(xs, -1)


class Add(Component):
    """Add vectors of equal width."""

    reads_more = True

    def build(self, params: Any, inputs: Sequence[Shape], context: BuildContext) -> Shape:
        widths = [shape.sizes[0] for shape in inputs]
        if len(set(widths)) > 1:
            raise WiringError(f"all sources must have the same width; the widths are {', '.join(map(str, widths))}.")
        return inputs[0]

    def forward(self, *xs: Tensor) -> Tensor:
        return torch.stack(xs).sum(0)


class Mean(Add):
    """Average vectors of equal width."""

    def forward(self, *xs: Tensor) -> Tensor:
        return torch.stack(xs).mean(0)
