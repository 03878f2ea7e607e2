"""Keeping weights near where they began: a pull towards their first values, and a hard limit on their size.

Weights travel as name -> tensor, as in `dict(module.named_parameters())`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor


def l2_to_init_loss(
    params: Mapping[str, Tensor], init: Mapping[str, Tensor], scales: Mapping[str, float] | None = None
) -> Tensor:
    """Sum of squared distances of params from init, each times its scale (1 where none is given)."""
    _require_same_names(params, init)
    scales = scales or {}
    terms = [scales.get(name, 1.0) * (param - init[name]).square().sum() for name, param in params.items()]
    return torch.stack(terms).sum()


@torch.no_grad()
def weight_limits(
    init: Mapping[str, Tensor], weight_clip: float, scales: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Largest size of each weight: weight_clip x the largest first weight of its layer x its scale.

    A layer is what shares a name up to the last dot, so a bias that began at 0 has its weight matrix's limit.
    A layer that is all 0 at first has no limit: it could never move.
    """
    largest: dict[str, float] = defaultdict(float)
    for name, weight in init.items():
        layer = name.rpartition(".")[0]
        largest[layer] = max(largest[layer], float(weight.abs().max()) if weight.numel() else 0.0)
    scales = scales or {}
    limits = {name: weight_clip * largest[name.rpartition(".")[0]] * scales.get(name, 1.0) for name in init}
    return {name: limit for name, limit in limits.items() if limit > 0}


@torch.no_grad()
def clip_weights_(params: Mapping[str, Tensor], limits: Mapping[str, float]) -> None:
    """Clamp each named weight to +-limit in place; weights without a limit stay."""
    for name, limit in limits.items():
        params[name].clamp_(-limit, limit)


def _require_same_names(params: Mapping[str, Tensor], init: Mapping[str, Tensor]) -> None:
    if different := params.keys() ^ init.keys():
        raise ValueError(f"weights and their first values differ in {sorted(different)}")
