"""Action distributions: network outputs `params` [..., num_params] -> samples, log-probs, entropies."""

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
    """How actions are drawn. The generator is private, so that nothing else in the process changes a run."""

    greedy: bool = False
    generator: torch.Generator | None = None


def only_legal(params: Tensor, mask: Tensor) -> Tensor:
    """Give choices whose mask [..., num_params] is false probability 0 and no gradient."""
    return params.where(mask != 0, ILLEGAL)


class ActionDistribution(ABC):
    num_params: int

    @abstractmethod
    def draw(self, params: Tensor, how: Sampling) -> tuple[Tensor, Tensor]:
        """Actions [..., *action shape] drawn from params [..., num_params], without gradient, and their log-probs [...]."""

    @abstractmethod
    def score(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies [...] of given actions."""

    @abstractmethod
    def full_log_probs(self, params: Tensor) -> Tensor:
        """The whole distribution: all log-probabilities, or mean and log standard deviation."""


class Categorical(ActionDistribution):
    def __init__(self, n: int):
        self.num_params = n

    def draw(self, params: Tensor, how: Sampling) -> tuple[Tensor, Tensor]:
        log_probs = params.log_softmax(-1)
        if how.greedy:
            action = params.argmax(-1, keepdim=True)
        else:
            # argmax(p / Exp(1)) samples from p in one pass, without a cumulative sum, on any device.
            # A wait of 0 would turn an impossible choice into 0 / 0 = NaN, and argmax would pick it.
            waits = torch.empty_like(params).exponential_(generator=how.generator).clamp_(min=SHORTEST_WAIT)
            action = (log_probs.detach().exp() / waits).argmax(-1, keepdim=True)
        return action.squeeze(-1), log_probs.gather(-1, action).squeeze(-1)

    def score(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = params.log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1), entropy

    def full_log_probs(self, params: Tensor) -> Tensor:
        return params.log_softmax(-1)


class MultiCategorical(ActionDistribution):
    """Independent choices; log-probabilities and entropies add up."""

    def __init__(self, sizes: tuple[int, ...]):
        self.sizes = list(sizes)
        self.num_params = sum(sizes)
        self.choices = [Categorical(n) for n in sizes]

    def draw(self, params: Tensor, how: Sampling) -> tuple[Tensor, Tensor]:
        parts = zip(self.choices, params.split(self.sizes, -1), strict=True)
        actions, log_probs = zip(*(choice.draw(part, how) for choice, part in parts), strict=True)
        return torch.stack(actions, -1), torch.stack(log_probs).sum(0)

    def score(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        parts = zip(self.choices, params.split(self.sizes, -1), action.unbind(-1), strict=True)
        log_probs, entropies = zip(*(choice.score(part, chosen) for choice, part, chosen in parts), strict=True)
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def full_log_probs(self, params: Tensor) -> Tensor:
        return torch.cat([p.log_softmax(-1) for p in params.split(self.sizes, -1)], -1)


class TypeAndArgument(ActionDistribution):
    """A type and its argument, drawn together from the flat list of valid pairs."""

    def __init__(self, arguments: tuple[int, ...]):
        self.flat = Categorical(sum(arguments))
        self.num_params = sum(arguments)
        self._pairs = torch.tensor([(kind, i) for kind, count in enumerate(arguments) for i in range(count)])
        self._starts = torch.tensor([0, *arguments]).cumsum(0)[:-1]

    def to_flat(self, action: Tensor) -> Tensor:
        """Pairs [..., 2] -> indices into the flat list [...]."""
        kind, argument = action.unbind(-1)
        return self._starts.to(action.device)[kind] + argument

    def to_pair(self, flat: Tensor) -> Tensor:
        """Indices into the flat list [...] -> pairs [..., 2]."""
        return self._pairs.to(flat.device)[flat]

    def draw(self, params: Tensor, how: Sampling) -> tuple[Tensor, Tensor]:
        flat, log_prob = self.flat.draw(params, how)
        return self.to_pair(flat), log_prob

    def score(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        return self.flat.score(params, self.to_flat(action))

    def full_log_probs(self, params: Tensor) -> Tensor:
        return self.flat.full_log_probs(params)


class DiagonalGaussian(ActionDistribution):
    """Independent normals; params are the means, then the log standard deviations.

    Actions are not squashed: the world clips them, and the log-prob is that of the unclipped sample.
    """

    def __init__(self, size: int):
        self.num_params = 2 * size

    def draw(self, params: Tensor, how: Sampling) -> tuple[Tensor, Tensor]:
        mean, log_std = params.detach().chunk(2, -1)
        action = mean if how.greedy else mean + log_std.exp() * torch.empty_like(mean).normal_(generator=how.generator)
        return action, self._log_prob(params, action)

    def score(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_std = params.chunk(2, -1)[1]
        return self._log_prob(params, action), (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def full_log_probs(self, params: Tensor) -> Tensor:
        return params

    @staticmethod
    def _log_prob(params: Tensor, action: Tensor) -> Tensor:
        mean, log_std = params.chunk(2, -1)
        z = (action - mean) * (-log_std).exp()
        return (-0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


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
