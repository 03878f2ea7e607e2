"""Bugs in replay parity, and calls with side effects."""

from __future__ import annotations

import threading

import torch
from torch import Tensor, nn

from audit.mutants.reference_policy import CHOICES, HIDDEN, Network, ReferencePolicy
from audit.mutants.register import caught_by
from holdfast.audit.subject import Outputs, State


@caught_by("log_probs_replay", "the first version of MettaGrid's trainer")
class ScoresWrongAction(ReferencePolicy):
    """Learning scores a different action than the one taken."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        outputs, final = super().sequence(obs, state, first, actions)
        wrong = self.scores(outputs["full_log_probs"], outputs["value"], (actions + 1) % CHOICES)
        return {**outputs, "log_prob": wrong["log_prob"]}, final


@caught_by("values_replay")
class LearnedValuesHaveNoMemory(ReferencePolicy):
    """In learning, values are computed from features without memory."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        outputs, final = super().sequence(obs, state, first, actions)
        return {**outputs, "value": self.heads(self.encode(obs))[1]}, final


@caught_by("entropy_matches_policy")
class EntropyOfSquaredProbabilities(ReferencePolicy):
    """Entropy is computed from squared probabilities."""

    def scores(self, log_probs: Tensor, value: Tensor, actions: Tensor) -> Outputs:
        sharp = (2 * log_probs).log_softmax(-1)
        return {**super().scores(log_probs, value, actions), "entropy": -(sharp.exp() * sharp).sum(-1)}


@caught_by("inputs_are_not_modified")
class ResetsInPlace(ReferencePolicy):
    """Resets write zeros into the caller's tensors."""

    def reset(self, state: State, first: Tensor) -> State:
        if any(leaf.requires_grad for leaf in state):
            return super().reset(state, first)
        for leaf in state:
            leaf[:, first != 0] = 0.0
        return state


@caught_by("inputs_are_not_modified")
class ActingScalesInPlace(ReferencePolicy):
    """Acting divides the caller's observations in place."""

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        outputs = super().act(obs, terminated, truncated, slots)
        obs.div_(255.0)
        return outputs


@caught_by("learning_does_not_write_memory", "the first version of MettaGrid's trainer")
class LearningWritesMemory(ReferencePolicy):
    """Learning stores its final state as the memory of acting."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        outputs, final = super().sequence(obs, state, first, actions)
        slots = torch.arange(min(obs.shape[1], self.memory[0].shape[1]))
        if len(slots):
            self.store(tuple(leaf[:, : len(slots)] for leaf in final), slots)
        return outputs, final


class Normalising(Network):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(HIDDEN))


@caught_by("calls_do_not_change_weights", "Sample Factory, rl_games, skrl, rsl_rl")
class NormaliserUpdatesInForward(ReferencePolicy):
    """Running statistics are updated in every forward."""

    def network(self) -> Network:
        return Normalising()

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        mean = self.module.get_buffer("mean")
        mean.copy_(0.9 * mean + 0.1 * x.detach().flatten(0, -2).mean(0))
        return x - mean.clone()


@caught_by("calls_are_repeatable")
class AddsNoise(ReferencePolicy):
    """Noise is added to the features."""

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        return x + 0.01 * torch.randn_like(x)


@caught_by("calls_are_repeatable")
class RemembersOutsideItsState(ReferencePolicy):
    """The features of the last call are kept on the policy, outside its state."""

    last = torch.zeros(())

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        before, self.last = self.last, x.detach().mean()
        return x + before


@caught_by("train_and_eval_agree")
class UsesDropout(ReferencePolicy):
    """Dropout is applied between memory and heads."""

    def heads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return super().heads(nn.functional.dropout(y, 0.3, self.module.training))


@caught_by("thread_independent", "torchrl #3754")
class ThreadLocalMode(ReferencePolicy):
    """Memory depends on a threading.local flag, which is set only in the thread that created the policy."""

    def __init__(self, seed: int = 0):
        self.mode = threading.local()
        self.mode.recurrent = True
        super().__init__(seed)

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, first if hasattr(self.mode, "recurrent") else torch.ones_like(first))


@caught_by("learning_does_not_write_memory")
class ScoringWritesMemory(ReferencePolicy):
    """score (with terminated and truncated flags) changes the memory of acting; sequence does not."""

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        self.memory = tuple(leaf / 2 for leaf in self.memory)
        return super().score(obs, terminated, truncated, state, actions)


@caught_by("inputs_are_not_modified")
class ScoringModifiesStartState(ReferencePolicy):
    """score (with terminated and truncated flags) writes into its start state."""

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        outputs = super().score(obs, terminated, truncated, state, actions)
        if not any(leaf.requires_grad for leaf in state):
            for leaf in state:
                leaf.zero_()
        return outputs


@caught_by("calls_do_not_change_weights")
class ValueCallUpdatesStatistics(ReferencePolicy):
    """Running statistics are updated when a bootstrap value is computed."""

    def network(self) -> Network:
        return Normalising()

    def encode(self, obs: Tensor) -> Tensor:
        return super().encode(obs) - self.module.get_buffer("mean").clone()

    def value_from_memory(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        outputs = super().value_from_memory(obs, terminated, truncated, slots)
        self.module.get_buffer("mean").add_(0.01)
        return outputs


@caught_by("updated_weights_are_used")
class ActsWithOldWeights(ReferencePolicy):
    """Acting uses a copy of the actor's weights made at the first call."""

    copy: Tensor | None = None

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        weight = self.module.actor.weight
        if self.copy is None:
            self.copy = weight.detach().clone()
        now = weight.detach().clone()
        with torch.no_grad():
            weight.copy_(self.copy)
            try:
                return super().step(obs, state, first)
            finally:
                weight.copy_(now)
