"""The PPO losses. Every mean is over valid steps only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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

    METRICS: ClassVar = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")

    def tensors(self) -> list[Tensor]:
        """Return the tensors named in METRICS, detached."""
        return [getattr(self, name).detach() for name in self.METRICS]

    def metrics(self) -> dict[str, float]:
        return dict(zip(self.METRICS, torch.stack(self.tensors()).tolist(), strict=True))


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
    num_valid: Tensor | float | None = None,
) -> Losses:
    """Return the clipped policy and value losses of steps [T, M]. value_clip=0 leaves the value loss unclipped.

    num_valid: the number of valid steps to divide by, if these steps are only a part of a minibatch (None: all of it).

    weights [M]: importance weights of the segments; they scale losses and entropy, not the KL and clip metrics.
    """
    # Mask before exp and square: with a later mask, inf or NaN from an invalid step would still reach the gradient.
    log_ratio = (new_log_prob - old_log_prob).where(valid, 0.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    gains = torch.minimum(advantages * ratio, advantages * clipped)

    value_losses = (new_values - returns).where(valid, 0.0).square()
    if value_clip > 0:
        near_old = old_values + (new_values - old_values).clamp(-value_clip, value_clip)
        value_losses = value_losses.maximum((near_old - returns).where(valid, 0.0).square())

    if num_valid is None:
        num_valid = valid.sum().clamp(min=1)
    share = valid.to(ratio.dtype) / num_valid  # weight of each step in a mean over valid steps
    weighted = share if weights is None else share * weights
    # One matrix product instead of a mask, a sum and a division per mean.
    means = torch.stack([gains, value_losses, entropy]).where(valid, 0.0).flatten(1) @ weighted.flatten()
    gain, value_loss, mean_entropy = means.unbind()
    with torch.no_grad():
        was_clipped = ((ratio - 1.0).abs() > clip).to(ratio.dtype)
        approx_kl, clip_fraction = torch.stack([ratio - 1.0 - log_ratio, was_clipped]).flatten(1) @ share.flatten()
    return Losses(-gain, 0.5 * value_loss, mean_entropy, approx_kl, clip_fraction, log_ratio.detach())


@torch.no_grad()
def normalize_advantages(
    advantages: Tensor, valid: Tensor, moments: tuple[float, float] | None = None, eps: float = 1e-8
) -> Tensor:
    """Scale advantages to zero mean and unit variance over valid steps; 0 where not valid.

    moments: mean and variance, if these steps are only a part of a minibatch (None: those of these steps).
    """
    if moments is not None:
        mean, variance = moments
        return ((advantages - mean) / (variance**0.5 + eps)).where(valid, 0.0)
    num_valid = valid.sum().clamp(min=1)
    centred = advantages.where(valid, 0.0)
    # Centre twice, because the rounding error of the mean is as large as eps and would turn equal advantages into noise.
    for _ in range(2):
        centred = (centred - centred.sum() / num_valid).where(valid, 0.0)
    return centred / ((centred.square().sum() / num_valid).sqrt() + eps)


@torch.no_grad()
def explained_variance(values: Tensor, returns: Tensor, valid: Tensor) -> Tensor:
    """Return 1 - Var(returns - values) / Var(returns): negative if worse than a constant, 0 if returns do not vary."""
    total = _variance(returns, valid)
    left = _variance(returns - values, valid)
    return (1.0 - left / total).where(total > 0, 0.0)


def _variance(x: Tensor, valid: Tensor) -> Tensor:
    num_valid = valid.sum().clamp(min=1)
    mean = x.where(valid, 0.0).sum() / num_valid
    return (x - mean).square().where(valid, 0.0).sum() / num_valid
