"""Learning that looks at something else than what was lived."""

from __future__ import annotations

import threading

import torch
from torch import Tensor, nn

from holdfast.audit.mutants.register import caught_by
from holdfast.audit.mutants.sound import CHOICES, HIDDEN, Network, Sound
from holdfast.audit.subject import Outputs, State


@caught_by("log_probs_replay", "the first version of MettaGrid's trainer")
class ScoresTheWrongAction(Sound):
    """Learning computes another log-prob than acting did: here that of the next action."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        outputs, final = super().sequence(obs, state, first, actions)
        wrong = self.scores(outputs["full_log_probs"], outputs["value"], (actions + 1) % CHOICES)
        return {**outputs, "log_prob": wrong["log_prob"]}, final


@caught_by("values_replay")
class ValuesSeeNoMemory(Sound):
    """While learning, values come from the features instead of the memory."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        outputs, final = super().sequence(obs, state, first, actions)
        return {**outputs, "value": self.heads(self.encode(obs))[1]}, final


@caught_by("entropy_is_that_of_the_policy")
class EntropyOfLogits(Sound):
    """Entropy of probabilities that were squared by mistake."""

    def scores(self, log_probs: Tensor, value: Tensor, actions: Tensor) -> Outputs:
        sharp = (2 * log_probs).log_softmax(-1)
        return {**super().scores(log_probs, value, actions), "entropy": -(sharp.exp() * sharp).sum(-1)}


@caught_by("start_states_are_not_changed")
class ClearsInPlace(Sound):
    """Resets write zeros into the tensors they were given."""

    def reset(self, state: State, first: Tensor) -> State:
        if any(leaf.requires_grad for leaf in state):
            return super().reset(state, first)
        for leaf in state:
            leaf[:, first != 0] = 0.0
        return state


@caught_by("start_states_are_not_changed")
class ActingScalesInPlace(Sound):
    """Acting divides the observations it is given in place, after it has looked at them."""

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        outputs = super().act(obs, terminated, truncated, slots)
        obs.div_(255.0)
        return outputs


@caught_by("learning_leaves_memory_alone", "the first version of MettaGrid's trainer")
class LearningWritesMemory(Sound):
    """Scoring stores its final state as the memory that acting continues from."""

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


@caught_by("calls_change_no_weights", "Sample Factory, rl_games, skrl, rsl_rl")
class NormaliserMoves(Sound):
    """Running statistics move in every forward."""

    def network(self) -> Network:
        return Normalising()

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        mean = self.module.get_buffer("mean")
        mean.copy_(0.9 * mean + 0.1 * x.detach().flatten(0, -2).mean(0))
        return x - mean.clone()


@caught_by("equal_calls_are_equal")
class AddsNoise(Sound):
    """Features are shaken a little."""

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        return x + 0.01 * torch.randn_like(x)


@caught_by("equal_calls_are_equal")
class RemembersOnTheSide(Sound):
    """The features of the last call are kept on the policy, outside its state."""

    last = torch.zeros(())

    def encode(self, obs: Tensor) -> Tensor:
        x = super().encode(obs)
        before, self.last = self.last, x.detach().mean()
        return x + before


@caught_by("both_modes_agree")
class DropsOut(Sound):
    """Dropout between memory and heads."""

    def heads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return super().heads(nn.functional.dropout(y, 0.3, self.module.training))


@caught_by("another_thread_gives_the_same", "torchrl #3754")
class ModeOfAThread(Sound):
    """Whether there is a memory is a mode of the thread that made the policy; in others there is none."""

    def __init__(self, seed: int = 0):
        self.mode = threading.local()
        self.mode.recurrent = True
        super().__init__(seed)

    def reset(self, state: State, first: Tensor) -> State:
        return super().reset(state, first if hasattr(self.mode, "recurrent") else torch.ones_like(first))


@caught_by("learning_leaves_memory_alone")
class ScoringWritesMemory(Sound):
    """Only scoring that is told how episodes ended moves the memory that acting continues from."""

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        self.memory = tuple(leaf / 2 for leaf in self.memory)
        return super().score(obs, terminated, truncated, state, actions)


@caught_by("start_states_are_not_changed")
class ScoringClearsInPlace(Sound):
    """Scoring that is told how episodes ended writes into the start state it is given."""

    def score(self, obs: Tensor, terminated: Tensor, truncated: Tensor, state: State, actions: Tensor) -> Outputs:
        outputs = super().score(obs, terminated, truncated, state, actions)
        if not any(leaf.requires_grad for leaf in state):
            for leaf in state:
                leaf.zero_()
        return outputs


@caught_by("calls_change_no_weights")
class LookingMovesStatistics(Sound):
    """Running statistics move when a value is looked up, and only then."""

    def network(self) -> Network:
        return Normalising()

    def encode(self, obs: Tensor) -> Tensor:
        return super().encode(obs) - self.module.get_buffer("mean").clone()

    def look(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        outputs = super().look(obs, terminated, truncated, slots)
        self.module.get_buffer("mean").add_(0.01)
        return outputs


@caught_by("new_weights_are_used")
class ActsByOldWeights(Sound):
    """Acting goes by a copy of the actor's weights that was made when they were first used."""

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
