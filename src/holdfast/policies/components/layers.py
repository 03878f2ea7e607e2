"""Components for vectors and grids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.policies.components.component import Component, Entry, Params, Place, Shape, WiringError, initialize
from holdfast.policies.parts import layers as parts
from holdfast.policies.parts.token_conv import TokenConv2d
from holdfast.policies.parts.tokens import PlacedTokens

Size = Annotated[int, Field(ge=1, le=65536, strict=True)]  # strict: true is not 1


class Linear(Component):
    """A linear layer."""

    reads = (("vector", "vectors"),)
    has_weights = True

    class Params(Params):
        out_features: Size

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        *others, in_features = inputs[0].sizes
        self.layer = nn.Linear(in_features, params.out_features)
        initialize(self.layer.weight, self.layer.bias, entry, math.sqrt(2.0) if entry.nonlinearity == "tanh" else 1.0)
        self.out = Shape(inputs[0].kind, (*others, params.out_features))

    def forward(self, x: Tensor) -> Tensor:
        return self.activate(self.layer(x))


class Conv2d(Component):
    """A convolution over a grid. Over a grid of tokens it works without building the grid."""

    reads = (("grid", "token grid"),)
    has_weights = True

    class Params(Params):
        out_channels: Size
        kernel_size: Size
        stride: Size = 1

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        channels, height, width = inputs[0].sizes
        kernel, stride = params.kernel_size, params.stride
        if kernel > min(height, width):
            raise WiringError(f"a kernel of {kernel} does not fit into a grid of {height} x {width}")
        if inputs[0].kind == "token grid":
            if stride > kernel or (height - kernel) % stride:
                raise WiringError(f"kernel {kernel}, stride {stride} would not see every cell of {height} x {width}")
            self.layer: nn.Module = TokenConv2d(channels, height, params.out_channels, kernel, stride)
        else:
            self.layer = parts.Conv2d(channels, params.out_channels, kernel, stride)
        initialize(self.layer.weight, self.layer.bias, entry, 1.0)  # type: ignore[arg-type]
        self.out = Shape("grid", (params.out_channels, (height - kernel) // stride + 1, (width - kernel) // stride + 1))

    def forward(self, x: Tensor | PlacedTokens) -> Tensor:
        return self.activate(self.layer(x))


class Flatten(Component):
    """Anything of one row as one vector."""

    reads = (("vector", "vectors", "grid"),)

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        self.out = Shape("vector", (math.prod(inputs[0].sizes),))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


class Unchanged(Component):
    """One source, one result of the same shape."""

    reads = (("vector", "vectors", "grid"),)

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        self.out = inputs[0]


class Identity(Unchanged):
    def forward(self, x: Tensor) -> Tensor:
        return x


class ReLU(Unchanged):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


class Tanh(Unchanged):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x)


class SiLU(Unchanged):
    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


class LayerNorm(Unchanged):
    """Each vector to zero mean and unit variance, then a learned scale and shift."""

    reads = (("vector", "vectors"),)

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        self.layer = nn.LayerNorm(inputs[0].sizes[-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Dropout(Unchanged):
    """Leaves units out, the same ones for a whole batch: with others at every call, what is replayed would not be
    what was lived. Evaluation leaves none out."""

    reads = (("vector",),)

    class Params(Params):
        p: float = Field(default=0.1, ge=0.0, lt=1.0)

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        self.p = params.p
        self.register_buffer("kept", torch.ones(inputs[0].sizes))
        self.draw()

    kept: Tensor

    def absorb(self, obs: Tensor) -> None:
        self.draw()

    def draw(self) -> None:
        self.kept.copy_((torch.rand(self.kept.shape) >= self.p).float() / (1.0 - self.p))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.kept if self.training else x


class ResidualMLP(Unchanged):
    """x + MLP(LayerNorm(x)), once per layer."""

    reads = (("vector",),)

    class Params(Params):
        num_layers: Size = 1
        hidden_features: Size = 128

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
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

    def forward(self, x: Tensor) -> Tensor:
        for block in self.layer:
            x = x + block(x)
        return x


class Concat(Component):
    """Vectors one behind the other."""

    reads_more = True

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        self.out = Shape("vector", (sum(shape.sizes[0] for shape in inputs),))

    def forward(self, *xs: Tensor) -> Tensor:
        return torch.cat(xs, -1)


class Add(Component):
    """The sum of vectors of one width."""

    reads_more = True

    def __init__(self, entry: Entry, params: Any, inputs: Sequence[Shape], place: Place):
        super().__init__(entry, params, inputs, place)
        widths = [shape.sizes[0] for shape in inputs]
        if len(set(widths)) > 1:
            raise WiringError(f"its sources have widths {', '.join(map(str, widths))}, and they have to be the same")
        self.out = inputs[0]

    def forward(self, *xs: Tensor) -> Tensor:
        return torch.stack(xs).sum(0)


class Mean(Add):
    """The mean of vectors of one width."""

    def forward(self, *xs: Tensor) -> Tensor:
        return torch.stack(xs).mean(0)
