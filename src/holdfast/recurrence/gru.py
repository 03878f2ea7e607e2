"""GRU with resets inside the segment."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.recurrence import fused
from holdfast.recurrence.core import State
from holdfast.recurrence.recurrent import Recurrent
from holdfast.recurrence.resets import Resets


class GRU(Recurrent):
    """State (h,)."""

    num_gates = 3
    num_leaves = 1
    first_bias = 0.0
    fused_cell = fused.GRU

    @staticmethod
    def sweep(x: Tensor, leaves: State, resets: Resets, weights: list[Tensor]) -> State:
        w_ih, w_hh, b_ih, b_hh = weights
        (h,) = leaves
        w_t, ys = w_hh.t(), []
        for slots, x_t in zip(resets.by_step, F.linear(x, w_ih, b_ih).unbind(0), strict=True):
            if slots is not None:
                h = h.index_fill(0, slots, 0.0)
            x_r, x_z, x_n = x_t.chunk(3, 1)
            h_r, h_z, h_n = torch.addmm(b_hh, h, w_t).chunk(3, 1)
            r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
            n = torch.tanh(x_n + r * h_n)
            h = n + z * (h - n)
            ys.append(h)
        return torch.stack(ys), h
