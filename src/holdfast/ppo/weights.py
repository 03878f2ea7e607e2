"""Keep weights near their initial values: L2-to-init loss, and weight clipping.

Weights are passed as name -> tensor, as in `dict(module.named_parameters())`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor


def l2_to_init_loss(
    params: Mapping[str, Tensor], init: Mapping[str, Tensor], scales: Mapping[str, float] | None = None
) -> Tensor:
    """Return the sum of squared differences between `params` and `init`, each multiplied by its scale (default 1)."""
    _require_same_names(params, init)
    scales = scales or {}
    terms = [scales.get(name, 1.0) * (param - init[name]).square().sum() for name, param in params.items()]
    return torch.stack(terms).sum()


@torch.no_grad()
def weight_limits(
    init: Mapping[str, Tensor], weight_clip: float, scales: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return the largest allowed |weight| by name: weight_clip * largest initial |weight| of the layer * scale.

    Parameters with the same name up to the last dot are one layer, so a bias initialised to 0 has the limit of its
    weight matrix. A layer initialised to 0 has no limit, because with limit 0 it could not learn.
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
    """Clamp each weight to +-limit in place; weights without a limit are unchanged."""
    for name, limit in limits.items():
        params[name].clamp_(-limit, limit)


def _require_same_names(params: Mapping[str, Tensor], init: Mapping[str, Tensor]) -> None:
    if different := params.keys() ^ init.keys():
        raise ValueError(f"`params` and `init` must have the same names; they differ in {sorted(different)}")
