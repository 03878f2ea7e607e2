"""How the weights are doing: their size, and in how many directions they really work."""

from __future__ import annotations

import torch

from holdfast.policies import Policy, shared_name


@torch.no_grad()
def weight_figures(policy: Policy) -> dict[str, float]:
    """For every weight matrix: norm, largest entry, and effective rank, by the name both families have for it.

    Effective rank: how many singular values it takes to make up 99% of their sum. A rank that falls while training
    stands still means that the network has stopped using its width.
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
