"""The PPO losses. Every mean is over valid steps only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Losses:
    """Loss terms of one minibatch. The first three have gradients; the rest are metrics."""

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor
    log_ratio: Tensor  # [T, M] log of new / old probability, 0 where not valid

    def metrics(self) -> dict[str, float]:
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
        figures = torch.stack([getattr(self, name).detach() for name in names]).tolist()
        return dict(zip(names, figures, strict=True))


def ppo_losses(
    new_log_prob: Tensor,
    old_log_prob: Tensor,
    advantages: Tensor,
    new_values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    entropy: Tensor,
    valid: Tensor,
    weights: Tensor | None,
    clip: float,
    value_clip: float,
) -> Losses:
    """Return the clipped policy and value losses of steps [T, M]. value_clip=0 leaves the value loss unclipped.

    weights [M]: importance weights of the segments; they scale losses and entropy, not the KL and clip metrics.
    """
    # Masked before exp and square: through a later mask, inf or NaN of an invalid step would reach the gradient.
    log_ratio = (new_log_prob - old_log_prob).where(valid, 0.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    policy_losses = -torch.minimum(advantages * ratio, advantages * clipped)

    value_losses = (new_values - returns).where(valid, 0.0).square()
    if value_clip > 0:
        near_old = old_values + (new_values - old_values).clamp(-value_clip, value_clip)
        value_losses = value_losses.maximum((near_old - returns).where(valid, 0.0).square())

    num_valid = valid.sum().clamp(min=1)
    weighted = (policy_losses, value_losses, entropy)
    if weights is not None:
        weighted = tuple(x * weights for x in weighted)
    policy_loss, value_loss, mean_entropy = (x.where(valid, 0.0).sum() / num_valid for x in weighted)
    with torch.no_grad():
        approx_kl = (ratio - 1.0 - log_ratio).where(valid, 0.0).sum() / num_valid
        clip_fraction = ((ratio - 1.0).abs() > clip).to(ratio.dtype).where(valid, 0.0).sum() / num_valid
    return Losses(policy_loss, 0.5 * value_loss, mean_entropy, approx_kl, clip_fraction, log_ratio.detach())


def masked_mean(x: Tensor, valid: Tensor) -> Tensor:
    """Return the mean of x [T, M] over valid steps; 0 if no step is valid."""
    return x.where(valid, 0.0).sum() / valid.sum().clamp(min=1)


@torch.no_grad()
def normalize_advantages(advantages: Tensor, valid: Tensor, eps: float = 1e-8) -> Tensor:
    """Scale advantages to zero mean and unit variance over valid steps; 0 where not valid."""
    centred = advantages - masked_mean(advantages, valid)
    # Twice: the rounding error of the mean is as large as eps, and would turn equal advantages into noise.
    centred = (centred - masked_mean(centred, valid)).where(valid, 0.0)
    return centred / (masked_mean(centred.square(), valid).sqrt() + eps)


@torch.no_grad()
def explained_variance(values: Tensor, returns: Tensor, valid: Tensor) -> Tensor:
    """Return 1 - Var(returns - values) / Var(returns); below 0 is worse than a constant; 0 if returns do not vary."""
    total = _variance(returns, valid)
    left = _variance(returns - values, valid)
    return (1.0 - left / total).where(total > 0, 0.0)


def _variance(x: Tensor, valid: Tensor) -> Tensor:
    return masked_mean((x - masked_mean(x, valid)).square(), valid)
