"""Running mean and variance of observations, updated between batches only."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningNorm(nn.Module):
    """(x - mean) / std, clipped to +-10. The statistics are saved with the weights and fixed in evaluation."""

    def __init__(self, size: int):
        super().__init__()
        self.mean = nn.Buffer(torch.zeros(size))
        self.var = nn.Buffer(torch.ones(size))
        self.count = nn.Buffer(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) * torch.rsqrt(self.var + 1e-8)).clamp(-10.0, 10.0)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Merge the statistics of x [N, size] (Chan's parallel formula, in double precision)."""
        x = x.double()
        n, total = x.shape[0], self.count.double() + x.shape[0]
        mean, var = x.mean(0), x.var(0, unbiased=False)
        delta = mean - self.mean.double()
        seen = self.count.double() / total
        merged = self.var.double() * seen + var * (n / total) + delta.square() * seen * (n / total)
        self.mean.copy_(self.mean.double() + delta * (n / total))
        self.var.copy_(merged)
        self.count.copy_(total)
