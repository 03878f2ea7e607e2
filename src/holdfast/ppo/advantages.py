"""How much better an action turned out than expected: GAE and V-trace over whole rollouts.

Inputs are rows as they arrived: rewards, dones, truncateds [R + 1, S] describe the transition into their row,
so the outcome of action t is at row t + 1 (row 0's belongs to the rollout before). The last row of values
[R + 1, S] is the bootstrap. final_values [R, S] is V(final observation) where action t's transition was
truncated, and is read nowhere else. valid [R, S] is false where the transition is junk.
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
    """Advantages and returns, [R, S] each. Junk has advantage 0 and stops the sum, as episode ends do."""
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
    """GAE corrected for a policy that moved since it acted: ratio [R, S] = new / old probability of actions.

    Returns are the V-trace targets and advantages their distance from V, so that with ratio 1 and clips of at
    least 1 both are GAE's for every lam.
    """
    errors, goes_on = _errors(rewards, values, dones, truncateds, final_values, valid, gamma)
    ratio = ratio.where(valid, 0.0)
    errors *= ratio.clamp(max=rho_clip)
    advantages = _accumulate(errors, goes_on * ratio.clamp(max=c_clip) * (gamma * lam))
    return advantages, advantages + values[:-1]


def _errors(
    rewards: Tensor,
    values: Tensor,
    dones: Tensor,
    truncateds: Tensor,
    final_values: Tensor,
    valid: Tensor,
    gamma: float,
) -> tuple[Tensor, Tensor]:
    """One-step errors [R, S], 0 where junk; and 1.0 where the next step is of the same episode, else 0.0."""
    done, truncated = dones[1:], truncateds[1:]
    next_values = torch.where(truncated, final_values, values[1:]).masked_fill_(done, 0.0)
    errors = next_values.mul_(gamma).add_(rewards[1:]).sub_(values[:-1]).masked_fill_(~valid, 0.0)
    goes_on = (valid & ~(done | truncated)).to(errors.dtype)
    return errors, goes_on


def _accumulate(errors: Tensor, decay: Tensor) -> Tensor:
    """sums[t] = errors[t] + decay[t] * sums[t + 1], in place: one operation per row, all slots at once."""
    rows, decays = errors.unbind(0), decay.unbind(0)
    for t in range(len(rows) - 2, -1, -1):
        rows[t].addcmul_(decays[t], rows[t + 1])
    return errors
