"""Linear layers computed by oneDNN, on processors where torch's default matrix product (MKL) is slower.

On AMD processors MKL uses AVX2 only. Where AVX-512 units are full width (Zen 5, CPU family 26), oneDNN is about twice as
fast: 190 to 275 GFLOP/s, compared with 110 to 121 for MKL, on one thread. On Zen 4 both reach 100 to 110, so MKL is used.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

SMALLEST_WEIGHT = 128 * 128  # for smaller weights, the extra call costs more than it saves
ZEN_5 = 26  # CPU family of AMD Zen 5


def onednn_is_faster(cpuinfo: str) -> bool:
    """Return whether oneDNN is faster on this processor, judged by the CPU family.

    This is not measured, because a measurement could differ when a run is resumed, which would change the results.
    """
    family = re.search(r"^cpu family\s*: (\d+)", cpuinfo, re.M)
    is_amd = re.search(r"^vendor_id\s*: AuthenticAMD", cpuinfo, re.M) is not None
    return is_amd and family is not None and int(family[1]) >= ZEN_5 and " avx512f" in cpuinfo


def _read_cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return ""


USE_ONEDNN = torch.backends.mkldnn.is_available() and onednn_is_faster(_read_cpuinfo())


class Linear(nn.Linear):
    """nn.Linear, computed by linear() below, which uses oneDNN or torch, the same one in acting and in learning."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute F.linear with oneDNN where that is faster.

    The choice never depends on the batch size, so that rounding is the same in acting and in learning.
    """
    is_float = x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu"
    fits = is_float and weight.numel() >= SMALLEST_WEIGHT and x.dim() > 1 and x.numel() > 0
    if not USE_ONEDNN or not fits or torch.compiler.is_compiling():
        return F.linear(x, weight, bias)
    y: Tensor = OneDNNLinear.apply(x.flatten(0, -2), weight, bias)  # pyright: ignore[reportAssignmentType]
    return y.view(*x.shape[:-1], len(weight))


class OneDNNLinear(torch.autograd.Function):
    """F.linear, computed by oneDNN: x [N, inputs], weight [outputs, inputs], bias [outputs] -> [N, outputs]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad
        grad = grad.contiguous()
        return (
            _product(grad, weight.t(), None) if need_x else None,
            _product(grad.t(), x.t(), None) if need_weight else None,
            grad.sum(0) if need_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x @ weight.T + bias, computed by oneDNN."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
