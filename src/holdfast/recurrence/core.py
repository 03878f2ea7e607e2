"""Core: base class of recurrent networks. The same call runs one acting step (T=1) or a whole segment."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from holdfast.config.registry import CELLS

State = tuple[Tensor, ...]


class Core(nn.Module):
    """Base class of recurrent networks: x [T, B, I], state, `first` flags [T, B] -> y [T, B, H], state after the last step.

    Where `first[t, b]` is set, slot b starts step t with zero state: neither values nor gradients cross an episode start.
    The state is an argument and a result, and is never stored in the core.
    """

    num_leaves = 1  # number of state tensors

    def __init__(self, input_size: int, hidden_size: int, num_layers: int):
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        for name in ("input_size", "hidden_size", "num_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")

    @property
    def state_shapes(self) -> tuple[tuple[int, int], ...]:
        """Return (layers, hidden) for each state tensor; with B slots the tensor has shape [layers, B, hidden]."""
        return ((self.num_layers, self.hidden_size),) * self.num_leaves

    @abstractmethod
    def forward(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]: ...

    def initial_state(self, B: int) -> State:
        """Return a zero state for B slots, with the device and dtype of the parameters."""
        like = next(self.parameters())
        return tuple(like.new_zeros(layers, B, hidden) for layers, hidden in self.state_shapes)

    def check(self, x: Tensor, state: State, first: Tensor) -> Tensor:
        """Raise ValueError if the shapes of `x`, `state` and `first` do not match; return `first` as bool [T, B]."""
        if x.dim() != 3 or x.shape[2] != self.input_size or 0 in x.shape:
            raise ValueError(
                f"`x` has shape {list(x.shape)}; it must be [T, B, {self.input_size}], with T and B at least 1."
            )
        T, B, _ = x.shape
        if first.shape != (T, B):
            raise ValueError(
                f"`first` has shape {list(first.shape)}; for `x` of shape {list(x.shape)} it must be [{T}, {B}]."
            )
        check_state(state, self.state_shapes, B)
        return as_mask(first)


def check_state(state: State, state_shapes: Sequence[tuple[int, int]], B: int) -> None:
    """Raise ValueError if the tensors in `state` do not have the shapes for B slots."""
    given, needed = [list(leaf.shape) for leaf in state], [[layers, B, hidden] for layers, hidden in state_shapes]
    if given != needed:
        raise ValueError(
            f"`state` has shapes {given}; for {B} slots it must be {needed}, as returned by initial_state({B})."
        )


def as_mask(first: Tensor) -> Tensor:
    """Return the `first` flags as bool; nonzero is true. Indexing with integer flags would select rows, not mask them."""
    return first if first.dtype == torch.bool else first != 0


def make_core(kind: str, input_size: int, hidden_size: int, num_layers: int) -> Core:
    """Build the core registered as `kind`, such as "lstm", or "none" for a core without memory."""
    if kind not in CELLS:
        raise ValueError(f"unknown core {kind!r}; choose one of {', '.join(CELLS)}.")
    return CELLS[kind](input_size, hidden_size, num_layers)


@CELLS.register("none")
class Memoryless(Core):
    """A feed-forward baseline without memory: `num_layers` linear layers, each followed by tanh. The state is ()."""

    num_leaves = 0

    def __init__(self, input_size: int, hidden_size: int, num_layers: int):
        super().__init__(input_size, hidden_size, num_layers)
        layers = [nn.Linear(a, b) for a, b in pairwise([input_size] + [hidden_size] * num_layers)]
        for layer in layers:
            nn.init.orthogonal_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, state: State, first: Tensor) -> tuple[Tensor, State]:
        self.check(x, state, first)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x, ()
