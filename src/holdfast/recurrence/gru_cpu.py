"""A GRU layer over a whole segment with a hand-written backward pass, for devices without a fused GRU kernel in torch.

Only h @ w_hh depends on the previous step; the input projection, the derivatives of the gates and the gradients of the
weights are computed for all steps at once. A reset sets rows of h to zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from holdfast.recurrence.core import State


def unroll_gru(x: Tensor, state: State, first: Tensor, weights: list[Tensor]) -> tuple[Tensor, State]:
    """Run all layers of a GRU; arguments and result as in Core.forward. weights: from Recurrent.weights().

    `state` must already be zero for the slots whose `first[0]` flag is set.
    """
    resets = Resets(first)
    finals = []
    for layer, h in enumerate(state[0].unbind(0)):
        x, h = GRULayer.apply(x, h, resets, *weights[4 * layer : 4 * layer + 4])  # pyright: ignore
        finals.append(h)
    return x, (torch.stack(finals),)


class Resets:
    """Index tensors of all episode starts later than step 0, computed from the flags `first` [T, B].

    by_step[t]: the slots that start an episode at step t, or None if there are none.
    rows: the index t * B + slot of every such start, or None if there are none.
    """

    def __init__(self, first: Tensor):
        T, B = first.shape
        self.rows: Tensor | None = None
        self.by_step: list[Tensor | None] = [None] * T
        counts = first[1:].sum(1).tolist()
        if any(counts):
            self.rows = first[1:].reshape(-1).nonzero().squeeze(1).add_(B)
            slots = self.rows.remainder(B).split(counts)
            self.by_step[1:] = [s if n else None for s, n in zip(slots, counts, strict=True)]


class GRULayer(torch.autograd.Function):
    """One GRU layer: x [T, B, I], start state h [B, H] -> y [T, B, H], final state [B, H].

    tanh(v) is computed as 2 sigmoid(2 v) - 1, because torch.tanh takes twice as long on CPU.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, resets: Resets, *weights: Tensor) -> State:
        w_ih, w_hh, b_ih, b_hh = weights
        T, B, _ = x.shape
        H = w_hh.shape[1]
        flat_x = x.reshape(T * B, -1)
        b_hn = b_hh[2 * H :]
        gates = torch.addmm(b_ih + torch.cat([b_hh[: 2 * H], torch.zeros_like(b_hn)]), flat_x, w_ih.t())
        gates = gates.view(T, B, 3 * H)
        y, n_from_h = (x.new_empty(T, B, H) for _ in range(2))
        ctx.save_for_backward(flat_x, h, w_ih, w_hh, y, gates, n_from_h)
        ctx.resets = resets
        ctx.set_materialize_grads(False)

        # Tensors, because converting a Python number would take half the time of each operation.
        two, minus_one = x.new_tensor([2.0, -1.0]).unbind(0)
        w_rz, w_n = w_hh[: 2 * H].t().contiguous(), w_hh[2 * H :].t().contiguous()
        steps = (*gates.view(T, B, 3, H).unbind(2), gates[:, :, : 2 * H], n_from_h, y)
        for slots, r, z, n, rz, n_from_h_t, y_t in zip(resets.by_step, *(s.unbind(0) for s in steps), strict=True):
            if slots is not None:
                h = h.index_fill(0, slots, 0.0)
            rz.addmm_(h, w_rz).sigmoid_()
            torch.addmm(b_hn, h, w_n, out=n_from_h_t)
            n.addcmul_(r, n_from_h_t).mul_(two).sigmoid_()
            torch.add(minus_one, n, alpha=2, out=n)
            h = torch.lerp(n, h, z, out=y_t)
        return y, h.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dh: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore
        flat_x, h0, w_ih, w_hh, y, gates, n_from_h = ctx.saved_tensors
        resets: Resets = ctx.resets
        T, B, H = y.shape
        r, z, n = gates.view(T, B, 3, H).unbind(2)
        h_before = torch.cat([h0.unsqueeze(0), y[:-1]])
        if resets.rows is not None:
            h_before.view(T * B, H).index_fill_(0, resets.rows, 0.0)

        # d: derivative of h with respect to each gate's input; the loop multiplies it by the gradient of h. The gate n is
        # stored twice, for its inputs from h and from x, so that both matrix products read contiguous gates.
        d = y.new_empty(T, B, 4, H)
        d_nh, d_r, d_z, d_nx = d.unbind(2)
        torch.mul(n, n, out=d_nh)
        torch.sub(y.new_ones(()), z, out=d_nx).addcmul_(d_nx, d_nh, value=-1)
        torch.mul(d_nx, r, out=d_nh)
        torch.mul(d_nh, n_from_h, out=d_r).addcmul_(d_r, r, value=-1)
        torch.sub(h_before, n, out=d_z).mul_(z).addcmul_(d_z, z, value=-1)

        dy = torch.zeros_like(y) if dy is None else dy
        dh = dy[-1].clone() if dh is None else dy[-1] + dh
        dh_of_four = dh.unsqueeze(1)
        w_nrz = torch.cat([w_hh[2 * H :], w_hh[: 2 * H]])
        before = (torch.zeros_like(h0), *dy[:-1].unbind(0))
        steps = (d, d.view(T, B, 4 * H)[:, :, : 3 * H], z)
        last_first = (reversed(s) for s in (resets.by_step, before, *(s.unbind(0) for s in steps)))
        for slots, dy_before, d_t, d_nrz, z_t in zip(*last_first, strict=True):
            d_t.mul_(dh_of_four)
            dh.mul_(z_t).addmm_(d_nrz, w_nrz)
            if slots is not None:
                dh.index_fill_(0, slots, 0.0)
            dh.add_(dy_before)

        d = d.view(T * B, 4 * H)
        d_x, d_h = d[:, H:], d[:, : 3 * H]
        need_x, _, _, *need_weights = ctx.needs_input_grad
        dx = torch.mm(d_x, w_ih).view(T, B, -1) if need_x else None
        if not any(need_weights):
            return dx, dh, None, None, None, None, None
        dw_nrz = torch.mm(d_h.t(), h_before.view(T * B, H))
        db = d.sum(0)
        dw_ih, dw_hh = torch.mm(d_x.t(), flat_x), torch.cat([dw_nrz[H:], dw_nrz[:H]])
        return dx, dh, None, dw_ih, dw_hh, db[H:], torch.cat([db[H : 3 * H], db[:H]])
