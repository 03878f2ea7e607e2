"""Draw the segments of each minibatch. The result depends only on the generator, not on the experience's device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor


def segment_minibatches(num_segments: int, segments_per_minibatch: int, generator: Generator) -> Iterator[Tensor]:
    """Yield segment ids [M] for one epoch: every segment once, shuffled. Only the last minibatch may be smaller."""
    _require_positive(num_segments, segments_per_minibatch)
    order = torch.randperm(num_segments, generator=generator, device=generator.device)
    return iter(order.split(segments_per_minibatch))


@torch.no_grad()
def prioritized_segments(priorities: Tensor, alpha: float, beta: float, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return ids [N] and weights [N] for one epoch: N draws with replacement, proportional to priorities [N] ** alpha.

    Importance weights are (N * probability) ** -beta; beta=1 removes the bias. The caller divides them by the largest one.
    """
    num_segments = len(priorities)
    _require_positive(num_segments, 1)
    priorities = priorities.to(generator.device)
    largest = priorities.max()
    if not bool(torch.isfinite(priorities).all()) or float(priorities.min()) < 0:
        raise ValueError(
            f"priorities must be finite and not negative, got {float(priorities.min())} to {float(largest)}"
        )
    shares = (priorities / largest).pow(alpha) if float(largest) > 0 else torch.ones_like(priorities)
    probabilities = shares / shares.sum()
    ids = torch.multinomial(probabilities, num_segments, replacement=True, generator=generator)
    return ids, (num_segments * probabilities[ids]).pow(-beta)


@torch.no_grad()
def segment_priorities(advantages: Tensor, horizon: int) -> Tensor:
    """Return the mean |advantage| of each segment: [R, S] -> [N], in the order of segment ids."""
    return advantages.abs().unflatten(0, (-1, horizon)).mean(1).flatten()


def _require_positive(num_segments: int, segments_per_minibatch: int) -> None:
    if num_segments < 1 or segments_per_minibatch < 1:
        raise ValueError(
            "num_segments and segments_per_minibatch must be at least 1; "
            f"got num_segments={num_segments}, segments_per_minibatch={segments_per_minibatch}"
        )
