"""From a policy's raw outputs to actions and their probabilities, for each kind of action space.

`params` [..., num_params] is what the network puts out. Sampling, scoring and entropy are pure functions of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.spec import ActionSpec, BoxActions, DiscreteActions, MultiDiscreteActions

ILLEGAL = -1e9  # probability exactly 0, and finite: 0 x log 0 in the entropy stays 0
SHORTEST_WAIT = torch.finfo(torch.float32).tiny


@dataclass
class Sampling:
    """How actions are drawn: from a generator of one's own, so that looking elsewhere cannot change a run."""

    greedy: bool = False
    generator: torch.Generator | None = None


def only_legal(params: Tensor, mask: Tensor) -> Tensor:
    """params [..., num_params] of choices, with those that mask [..., num_params] calls illegal out of reach of draws and gradients."""
    return params.where(mask != 0, ILLEGAL)


class ActionDistribution(ABC):
    num_params: int

    @abstractmethod
    def sample(self, params: Tensor, how: Sampling) -> Tensor:
        """Actions [..., *action shape] drawn from params [..., num_params]."""

    @abstractmethod
    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """Log-probability [...] of the given actions."""

    @abstractmethod
    def entropy(self, params: Tensor) -> Tensor: ...

    @abstractmethod
    def full_log_probs(self, params: Tensor) -> Tensor:
        """Everything known about the distribution: all log-probabilities, or mean and log-deviation."""


class Categorical(ActionDistribution):
    def __init__(self, n: int):
        self.num_params = n

    def sample(self, params: Tensor, how: Sampling) -> Tensor:
        if how.greedy:
            return params.argmax(-1)
        # argmax(p / Exp(1)) draws from p: one pass, no cumulative sum, works on any device.
        # A wait of 0 would make 0 / 0 of an impossible choice, and NaN wins every argmax.
        waiting = torch.empty_like(params).exponential_(generator=how.generator).clamp_(min=SHORTEST_WAIT)
        return (params.softmax(-1) / waiting).argmax(-1)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        return params.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self, params: Tensor) -> Tensor:
        log_probs = params.log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1)

    def full_log_probs(self, params: Tensor) -> Tensor:
        return params.log_softmax(-1)


class MultiCategorical(ActionDistribution):
    """Independent choices; log-probabilities and entropies add."""

    def __init__(self, sizes: tuple[int, ...]):
        self.sizes = list(sizes)
        self.num_params = sum(sizes)
        self.choices = [Categorical(n) for n in sizes]

    def sample(self, params: Tensor, how: Sampling) -> Tensor:
        parts = params.split(self.sizes, -1)
        return torch.stack([c.sample(p, how) for c, p in zip(self.choices, parts, strict=True)], -1)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        parts = zip(self.choices, params.split(self.sizes, -1), action.unbind(-1), strict=True)
        return torch.stack([c.log_prob(p, a) for c, p, a in parts]).sum(0)

    def entropy(self, params: Tensor) -> Tensor:
        parts = zip(self.choices, params.split(self.sizes, -1), strict=True)
        return torch.stack([c.entropy(p) for c, p in parts]).sum(0)

    def full_log_probs(self, params: Tensor) -> Tensor:
        return torch.cat([p.log_softmax(-1) for p in params.split(self.sizes, -1)], -1)


class TypeAndArgument(ActionDistribution):
    """A type and its argument, drawn together from the flat list of the pairs there are."""

    def __init__(self, arguments: tuple[int, ...]):
        self.flat = Categorical(sum(arguments))
        self.num_params = sum(arguments)
        self._pairs = torch.tensor([(kind, i) for kind, count in enumerate(arguments) for i in range(count)])
        self._starts = torch.tensor([0, *arguments]).cumsum(0)[:-1]

    def to_flat(self, action: Tensor) -> Tensor:
        """Pairs [..., 2] -> places in the flat list [...]."""
        kind, argument = action.unbind(-1)
        return self._starts.to(action.device)[kind] + argument

    def to_pair(self, flat: Tensor) -> Tensor:
        """Places in the flat list [...] -> pairs [..., 2]."""
        return self._pairs.to(flat.device)[flat]

    def sample(self, params: Tensor, how: Sampling) -> Tensor:
        return self.to_pair(self.flat.sample(params, how))

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        return self.flat.log_prob(params, self.to_flat(action))

    def entropy(self, params: Tensor) -> Tensor:
        return self.flat.entropy(params)

    def full_log_probs(self, params: Tensor) -> Tensor:
        return self.flat.full_log_probs(params)


class DiagonalGaussian(ActionDistribution):
    """Independent normal numbers; params are the means, then the log standard deviations.

    Actions are not squashed: the world clips them, and the probability is that of the number drawn.
    """

    def __init__(self, size: int):
        self.num_params = 2 * size

    def sample(self, params: Tensor, how: Sampling) -> Tensor:
        mean, log_std = params.chunk(2, -1)
        if how.greedy:
            return mean
        noise = torch.empty_like(mean).normal_(generator=how.generator)
        return mean + log_std.exp() * noise

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        mean, log_std = params.chunk(2, -1)
        z = (action - mean) * (-log_std).exp()
        return (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        log_std = params.chunk(2, -1)[1]
        return (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def full_log_probs(self, params: Tensor) -> Tensor:
        return params


def distribution_for(actions: ActionSpec) -> ActionDistribution:
    match actions:
        case DiscreteActions(names=names):
            return Categorical(len(names))
        case MultiDiscreteActions(arguments=arguments) if arguments:
            return TypeAndArgument(arguments)
        case MultiDiscreteActions(sizes=sizes):
            return MultiCategorical(sizes)
        case BoxActions(low=low):
            return DiagonalGaussian(len(low))
