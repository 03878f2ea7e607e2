"""LSTM with resets inside the segment."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from holdfast.recurrence import fused
from holdfast.recurrence.core import State
from holdfast.recurrence.recurrent import Recurrent
from holdfast.recurrence.resets import Resets, inputs_and_states


class LSTM(Recurrent):
    """State (h, c). Biases start at 1, so that a fresh cell keeps what it has."""

    num_gates = 4
    num_leaves = 2
    first_bias = 1.0
    fused_cell = fused.LSTM

    @staticmethod
    def sweep(x: Tensor, leaves: State, resets: Resets, weights: list[Tensor]) -> State:
        return LSTMSweep.apply(x, *leaves, resets, *weights)  # type: ignore[return-value]


class LSTMSweep(torch.autograd.Function):
    """One layer over a whole segment, gradients by hand.

    Only h @ w_hh has to wait for the step before it; the input projection, the derivatives of the gates and the
    gradients of the weights are made for all steps at once. A reset is a few rows set to zero.
    tanh(v) is taken as 2 sigmoid(2 v) - 1: on CPU torch.tanh costs twice that, and all four gates share one call.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, c: Tensor, resets: Resets, *weights: Tensor) -> State:
        w_ih, w_hh, b_ih, b_hh = weights
        T, B, I = x.shape
        H = w_hh.shape[1]
        flat_x = x.reshape(T * B, I)
        gates = torch.addmm(b_ih + b_hh, flat_x, w_ih.t()).view(T, B, 4 * H)
        y, cells, tanh_cells = (x.new_empty(T, B, H) for _ in range(3))
        ctx.save_for_backward(flat_x, h, c, w_ih, w_hh, y, gates, cells, tanh_cells)
        ctx.resets = resets
        ctx.set_materialize_grads(False)

        # as tensors: a Python number is converted anew by every operation, which takes half of its time
        two, minus_one = x.new_tensor([2.0, -1.0]).unbind(0)
        w = w_hh.t().contiguous() if T > 4 else w_hh.t()
        steps = (*gates.view(T, B, 4, H).unbind(2), gates, y, cells, tanh_cells)
        for slots, i, f, g, o, gates_t, y_t, c_t, tanh_c in zip(
            resets.by_step, *(s.unbind(0) for s in steps), strict=True
        ):
            if slots is not None:
                h, c = h.index_fill(0, slots, 0.0), c.index_fill(0, slots, 0.0)
            gates_t.addmm_(h, w)
            g.mul_(two)
            gates_t.sigmoid_()
            torch.add(minus_one, g, alpha=2, out=g)
            torch.mul(f, c, out=c_t).addcmul_(i, g)
            torch.mul(c_t, two, out=tanh_c).sigmoid_()
            torch.add(minus_one, tanh_c, alpha=2, out=tanh_c)
            h, c = torch.mul(o, tanh_c, out=y_t), c_t
        return y, h.clone(), c.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dh: Tensor | None, dc: Tensor | None) -> tuple[Tensor | None, ...]:
        flat_x, h0, c0, w_ih, w_hh, y, gates, cells, tanh_cells = ctx.saved_tensors
        resets: Resets = ctx.resets
        T, B, H = y.shape
        i, f, g, o = gates.view(T, B, 4, H).unbind(2)

        # d: how much the input of each gate moves c (i, f, g) or h (o); the loop turns it into the gates' gradient
        d = torch.empty_like(gates)
        d_i, d_f, d_g, d_o = d.view(T, B, 4, H).unbind(2)
        torch.mul(i, g, out=d_i).addcmul_(d_i, i, value=-1)
        torch.mul(f[0], c0, out=d_f[0])
        torch.mul(f[1:], cells[:-1], out=d_f[1:])
        d_f.addcmul_(d_f, f, value=-1)
        torch.addcmul(i, i, torch.mul(g, g, out=d_g), value=-1, out=d_g)
        torch.mul(o, tanh_cells, out=d_o).addcmul_(d_o, o, value=-1)
        h_per_c = tanh_cells.square()
        torch.addcmul(o, o, h_per_c, value=-1, out=h_per_c)
        if resets.rows is not None:
            d_f.view(T * B, H).index_fill_(0, resets.rows, 0.0)

        dy = torch.zeros_like(y) if dy is None else dy
        dh = dy[-1].clone() if dh is None else dy[-1] + dh
        dc = torch.zeros_like(c0) if dc is None else dc.clone()
        dc_of_three = dc.unsqueeze(1)
        before = (torch.zeros_like(h0), *dy[:-1].unbind(0))
        steps = (d, d.view(T, B, 4, H)[:, :, :3], d_o, f, h_per_c)
        for slots, dy_before, d_t, d_ifg, d_o_t, f_t, h_per_c_t in zip(
            *(reversed(s) for s in (resets.by_step, before, *(s.unbind(0) for s in steps))), strict=True
        ):
            dc.addcmul_(dh, h_per_c_t)
            d_ifg.mul_(dc_of_three)
            d_o_t.mul_(dh)
            dc.mul_(f_t)
            torch.mm(d_t, w_hh, out=dh)
            if slots is not None:
                dh.index_fill_(0, slots, 0.0)
                dc.index_fill_(0, slots, 0.0)
            dh.add_(dy_before)

        d = d.view(T * B, 4 * H)
        need_x, _, _, _, *need_weights = ctx.needs_input_grad
        dx = torch.mm(d, w_ih).view(T, B, -1) if need_x else None
        if not any(need_weights):
            return dx, dh, dc, None, None, None, None, None
        dw_ih, dw_hh = torch.mm(d.t(), inputs_and_states(flat_x, h0, y, resets)).split([len(flat_x[0]), H], 1)
        db = d.sum(0)
        return dx, dh, dc, None, dw_ih, dw_hh, db, db
