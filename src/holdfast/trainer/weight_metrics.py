"""Metrics of the weights: norm, largest entry and effective rank."""

from __future__ import annotations

import torch

from holdfast.policies import Policy, shared_name


@torch.no_grad()
def weight_metrics(policy: Policy) -> dict[str, float]:
    """Norm, largest entry and effective rank of every weight matrix, under the name both families share.

    The effective rank is the number of singular values that make up 99% of their sum. If it falls while returns stay
    flat, the network has stopped using its width.
    """
    found: dict[str, float] = {}
    for name, weight in policy.named_parameters():
        if weight.dim() < 2:
            continue
        sizes = torch.linalg.svdvals(weight.flatten(1).float())
        share = sizes.cumsum(0) / sizes.sum().clamp(min=1e-30)
        key = f"weights/{shared_name(name)}"
        found[f"{key}/norm"] = float(weight.norm())
        found[f"{key}/largest"] = float(weight.abs().max())
        found[f"{key}/effective_rank"] = int((share < 0.99).sum()) + 1
    return found
