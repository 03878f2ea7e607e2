"""h_t = a_t * h_{t-1} + b_t over a whole segment, with a hand-written backward. An episode starts where a_t is 0.

The gradient is the same recurrence backwards: db_t = dy_t + a_{t+1} * db_{t+1}. So each implementation takes a direction.
Where a_t is 0 neither values nor gradients pass, unless h is inf or NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# run(a, h, back): turn b into h [T, B, H] in place; a[t] of [T - 1, B, H] leads from h[t] to h[t + 1], or back if `back`.
Run = Callable[[Tensor, Tensor, bool], None]


def run_steps(a: Tensor, h: Tensor, back: bool) -> None:
    """T - 1 small operations in sequence."""
    values, factors = h.unbind(0), a.unbind(0)
    if back:
        values, factors = values[::-1], factors[::-1]
    for factor, (before, after) in zip(factors, pairwise(values), strict=True):
        after.addcmul_(factor, before)


def run_doubling(a: Tensor, h: Tensor, back: bool) -> None:
    """log2(T) large operations: each combines every block of `width` steps with the block before it."""
    width = 1
    while width < len(h):
        before, after = (h[width:], h[:-width]) if back else (h[:-width], h[width:])
        after += a * before
        a = a[width:] * a[:-width]
        width *= 2


class Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, h: Tensor, run: Run) -> Tensor:
        y = b.clone()
        y[0].addcmul_(a[0], h)
        run(a[1:], y, False)
        ctx.save_for_backward(a, h, y)
        ctx.run = run
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        a, h, y = ctx.saved_tensors
        db = dy.clone()
        ctx.run(a[1:], db, True)
        h_before = torch.cat([h.unsqueeze(0), y[:-1]])
        return db * h_before, db, db[0] * a[0], None


def scan(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    """a, b [T, B, H], start h [B, H] -> h after every step [T, B, H].

    On CPU steps are 1.5 to 2.6 times as fast as doubling, forward and backward (T 16 to 128, 1 or 2 threads). On a GPU
    every step would cost a kernel launch.
    """
    return Scan.apply(a, b, h, run_doubling if b.is_cuda else run_steps)  # pyright: ignore[reportReturnType]
