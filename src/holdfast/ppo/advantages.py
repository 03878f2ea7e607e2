"""Advantages and returns of whole rollouts: GAE, V-trace, and plain discounted returns.

Row t of `rewards`, `dones` and `truncateds` [R + 1, S] describes the transition from t - 1 to t, so the outcome of
action t is in row t + 1; row 0 belongs to the previous rollout. The last row of `values` [R + 1, S] is the bootstrap
value. `final_values` [R, S] is V(final observation) where the transition of action t was truncated; other entries are
unused. `valid` [R, S] is false where a transition must be ignored.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def gae(
    rewards: Tensor,
    values: Tensor,
    dones: Tensor,
    truncateds: Tensor,
    final_values: Tensor,
    valid: Tensor,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """Return GAE advantages and returns, [R, S] each. An invalid step has advantage 0 and cuts the sum of TD errors."""
    errors, goes_on = _errors(rewards, values, dones, truncateds, final_values, valid, gamma)
    advantages = _accumulate(errors, goes_on * (gamma * lam))
    return advantages, advantages + values[:-1]


@torch.no_grad()
def vtrace(
    rewards: Tensor,
    values: Tensor,
    dones: Tensor,
    truncateds: Tensor,
    final_values: Tensor,
    valid: Tensor,
    ratio: Tensor,
    gamma: float,
    lam: float,
    rho_clip: float,
    c_clip: float,
) -> tuple[Tensor, Tensor]:
    """Return V-trace advantages and returns, [R, S] each. ratio [R, S]: new / old action probability.

    Returns are the V-trace targets; advantages are targets minus values. With ratio 1 and both clips at least 1, the
    result equals GAE for every `lam`.
    """
    errors, goes_on = _errors(rewards, values, dones, truncateds, final_values, valid, gamma)
    ratio = ratio.where(valid, 0.0)
    errors *= ratio.clamp(max=rho_clip)
    advantages = _accumulate(errors, goes_on * ratio.clamp(max=c_clip) * (gamma * lam))
    return advantages, advantages + values[:-1]


@torch.no_grad()
def discounted_returns(rewards: Tensor, dones: Tensor, truncateds: Tensor, valid: Tensor, gamma: float) -> Tensor:
    """Return the discounted sums of rewards from each step to the end of its episode or of the rollout, [R, S]."""
    goes_on = (~(dones[1:] | truncateds[1:])).double()
    return _accumulate(rewards[1:].double().where(valid, 0.0), goes_on * gamma)


def _errors(
    rewards: Tensor,
    values: Tensor,
    dones: Tensor,
    truncateds: Tensor,
    final_values: Tensor,
    valid: Tensor,
    gamma: float,
) -> tuple[Tensor, Tensor]:
    """Return TD errors [R, S], 0 where not valid, and a float mask [R, S]: 1 where the episode continues, else 0."""
    done, truncated = dones[1:], truncateds[1:]
    next_values = torch.where(truncated, final_values, values[1:]).masked_fill_(done, 0.0)
    errors = next_values.mul_(gamma).add_(rewards[1:]).sub_(values[:-1]).masked_fill_(~valid, 0.0)
    goes_on = (valid & ~(done | truncated)).to(errors.dtype)
    return errors, goes_on


def _accumulate(errors: Tensor, decay: Tensor) -> Tensor:
    """Compute sums[t] = errors[t] + decay[t] * sums[t + 1] in place and return the sums."""
    rows, decays = errors.unbind(0), decay.unbind(0)
    for t in range(len(rows) - 2, -1, -1):
        rows[t].addcmul_(decays[t], rows[t + 1])
    return errors
