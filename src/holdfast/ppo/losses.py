"""What learning minimises. Every mean is over valid steps: padding and junk transitions never count."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Losses:
    """Terms of one minibatch. The first three carry gradients; the rest is for looking."""

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor
    ratio: Tensor  # [T, M] new / old probability, 1 where junk


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
    """Clipped policy and value losses of steps [T, M]. value_clip 0 leaves the value loss unclipped.

    weights [M]: importance weights of the segments, for losses and entropy; the rest is of steps as drawn.
    """
    # Masked before exp and square: through a later mask, inf or NaN on a junk step would reach the gradient.
    log_ratio = (new_log_prob - old_log_prob).where(valid, 0.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    policy_losses = -torch.minimum(advantages * ratio, advantages * clipped)

    value_losses = (new_values - returns).where(valid, 0.0).square()
    if value_clip > 0:
        near_old = old_values + (new_values - old_values).clamp(-value_clip, value_clip)
        value_losses = value_losses.maximum((near_old - returns).where(valid, 0.0).square())

    with torch.no_grad():
        approx_kl = masked_mean(ratio - 1.0 - log_ratio, valid)
        clip_fraction = masked_mean(((ratio - 1.0).abs() > clip).to(ratio.dtype), valid)
    return Losses(
        policy_loss=masked_mean(policy_losses, valid, weights),
        value_loss=0.5 * masked_mean(value_losses, valid, weights),
        entropy=masked_mean(entropy, valid, weights),
        approx_kl=approx_kl,
        clip_fraction=clip_fraction,
        ratio=ratio.detach(),
    )


def masked_mean(x: Tensor, valid: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum of x [T, M] over valid steps, times weights [M] if given, by their number; 0 if there is none."""
    if weights is not None:
        x = x * weights
    return x.where(valid, 0.0).sum() / valid.sum().clamp(min=1)


@torch.no_grad()
def normalize_advantages(advantages: Tensor, valid: Tensor, eps: float = 1e-8) -> Tensor:
    """Zero mean and unit variance over valid steps; 0 on the others."""
    centred = advantages - masked_mean(advantages, valid)
    # Once more: the mean's rounding error is as large as eps, and equal advantages would come out as noise.
    centred = (centred - masked_mean(centred, valid)).where(valid, 0.0)
    return centred / (masked_mean(centred.square(), valid).sqrt() + eps)


@torch.no_grad()
def explained_variance(values: Tensor, returns: Tensor, valid: Tensor) -> Tensor:
    """Share of the returns' variance that values account for: 1 all, 0 none, below 0 worse than a constant.

    0 too if returns do not vary.
    """
    total = _variance(returns, valid)
    left = _variance(returns - values, valid)
    return (1.0 - left / total).where(total > 0, 0.0)


def _variance(x: Tensor, valid: Tensor) -> Tensor:
    return masked_mean((x - masked_mean(x, valid)).square(), valid)
