"""The recurrent cores as a plain loop over steps that masks the state: the reference in tests, and what is exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from holdfast.recurrence.core import State, as_mask


class Looped(Protocol):
    """A core whose layers run `step(linear(x_t, *of_x), state, *of_h)`, where (of_x, of_h) is `layer_weights(layer)`."""

    num_layers: int
    step: ClassVar[Callable[..., State]]

    def layer_weights(self, layer: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]: ...


def masked_loop(core: Looped | Any, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
    """Compute core(x, state, first) one layer and one step at a time, with gradients from autograd."""
    first = as_mask(first).unsqueeze(-1)
    finals = []
    for layer in range(core.num_layers):
        of_x, of_h = core.layer_weights(layer)
        leaves = tuple(leaf[layer] for leaf in state)
        outputs = []
        for from_x, first_t in zip(linear(x, *of_x).unbind(0), first.unbind(0), strict=True):
            leaves = tuple(torch.where(first_t, 0.0, leaf) for leaf in leaves)
            leaves = core.step(from_x, leaves, *of_h)
            outputs.append(leaves[0])
        x = torch.stack(outputs)
        finals.append(leaves)
    return x, tuple(torch.stack(leaf) for leaf in zip(*finals, strict=True))


def lstm_step(from_x: Tensor, state: State, w_hh: Tensor, b_hh: Tensor) -> State:
    h, c = state
    i, f, g, o = (from_x + linear(h, w_hh, b_hh)).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_step(from_x: Tensor, state: State, w_hh: Tensor, b_hh: Tensor) -> State:
    (h,) = state
    (x_r, x_z, x_n), (h_r, h_z, h_n) = from_x.chunk(3, 1), linear(h, w_hh, b_hh).chunk(3, 1)
    z = torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)
    return ((1 - z) * n + z * h,)


def mingru_step(from_x: Tensor, state: State) -> State:
    (h,) = state
    gate, n = from_x.chunk(2, 1)
    z = torch.sigmoid(gate)
    return ((1 - z) * h + z * n,)
