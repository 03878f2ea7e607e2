"""Bugs whose cause only a further experiment finds: in what is stored, in scored actions, in caches, in rare calls."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from audit.mutants.reference_policy import ReferencePolicy
from audit.mutants.register import caught_by
from holdfast.audit.adapters import CleanRLAgent
from holdfast.audit.subject import ACTIONS, Outputs, State


@caught_by("outputs_are_causal", explained="all steps of its slot, earlier ones too.*statistic over time")
class NormalisesOverTime(ReferencePolicy):
    """Learning subtracts a tenth of the mean over time from the observations."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return super().sequence(obs - 0.1 * obs.mean(0, keepdim=True) * (len(obs) > 1), state, first, actions)


@caught_by("replay_from_stored_state", explained="calls_are_repeatable: act: repetition .* of the same 6 steps")
class ClearsMemoryEvery64Calls(ReferencePolicy):
    """Every 64th call of act clears all memory."""

    num_calls = 0

    def act(self, obs: Tensor, terminated: Tensor, truncated: Tensor, slots: Tensor) -> Outputs:
        self.num_calls += 1
        if self.num_calls % 64 == 0:
            self.reset_memory()
        return super().act(obs, terminated, truncated, slots)


@caught_by("replay_from_stored_state", explained="rounded to float16 where memory is stored .*half")
class StoresInHalfPrecision(ReferencePolicy):
    """Memory is stored in float16."""

    def store(self, state: State, slots: Tensor) -> None:
        super().store(tuple(leaf.half().float() for leaf in state), slots)


@caught_by("replay_from_stored_state", explained="two tensors of the state are swapped where memory is stored")
class StoresHAsC(ReferencePolicy):
    """h and c change places when they are stored."""

    def store(self, state: State, slots: Tensor) -> None:
        super().store(state[::-1], slots)


@caught_by("replay_from_stored_state", explained=r"swapped where memory is read.*in learning over sequences\)")
class LearnsFromHAsC(ReferencePolicy):
    """h and c of the start state change places in learning."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        return super().sequence(obs, state[::-1], first, actions)


@caught_by("steps_equal_sequence", explained="the action that is scored changes .*only in its log-prob")
class LearningSeesActions(ReferencePolicy):
    """Learning adds the scored action to what enters memory."""

    def sequence(self, obs: Tensor, state: State, first: Tensor, actions: Tensor | None) -> tuple[Outputs, State]:
        assert actions is not None
        ys = []
        for x, now, taken in zip(self.encode(obs), first, actions, strict=True):
            y, state = self.advance(x + 0.1 * taken.float().unsqueeze(-1), state, now)
            ys.append(y)
        return self.scores(*self.heads(torch.stack(ys)), actions), state


@caught_by("updated_weights_are_used", explained="a change of encoder.weight.* has no effect.*caches")
class CachesEncodings(ReferencePolicy):
    """Acting keeps the encoding of each observation, rounded to halves, that it has seen."""

    def __init__(self, seed: int = 0):
        self.cache: dict[tuple[int, ...], Tensor] = {}
        super().__init__(seed)

    def step(self, obs: Tensor, state: State, first: Tensor) -> tuple[Outputs, State]:
        codes = [tuple(code) for code in (obs * 2).round().int().tolist()]
        rows = [self.cache.setdefault(code, x.detach()) for code, x in zip(codes, self.encode(obs), strict=True)]
        y, state = self.advance(torch.stack(rows), state, first)
        log_probs, value = self.heads(y)
        actions = torch.multinomial(log_probs.exp(), 1).squeeze(-1)
        return {ACTIONS: actions, **self.scores(log_probs, value, actions)}, state


class Agent(nn.Module):
    """An agent in the style of CleanRL's ppo_atari_lstm.py."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.lstm = nn.LSTM(8, 8)
        self.actor, self.critic = nn.Linear(8, 2), nn.Linear(8, 1)

    def get_states(self, x: Tensor, lstm_state: State, done: Tensor) -> tuple[Tensor, State]:
        slots = lstm_state[0].shape[1]
        x, done = torch.tanh(self.encoder(x)).unflatten(0, (-1, slots)), done.unflatten(0, (-1, slots))
        ys = []
        for now, ended in zip(x, done, strict=True):
            y, lstm_state = self.lstm(now.unsqueeze(0), self.reset(lstm_state, (1.0 - ended).view(1, -1, 1)))
            ys.append(y[0])
        return torch.cat(ys), lstm_state

    def reset(self, state: State, kept: Tensor) -> State:
        return kept * state[0], kept * state[1]

    def get_value(self, x: Tensor, lstm_state: State, done: Tensor) -> Tensor:
        return self.critic(self.get_states(x, lstm_state, done)[0])

    def get_action_and_value(self, x: Tensor, lstm_state: State, done: Tensor, action: Tensor | None = None):
        y, lstm_state = self.get_states(x, lstm_state, done)
        choices = Categorical(logits=self.actor(y))
        action = choices.sample() if action is None else action
        return action, choices.log_prob(action), choices.entropy(), self.critic(y), lstm_state


class KeepsC(Agent):
    def reset(self, state: State, kept: Tensor) -> State:
        return kept * state[0], state[1]


@caught_by(
    "reset_clears_whole_state",
    same_as="ResetsOnlyH",
    explained="^reset_clears_whole_state: a reset clears some tensors .*not tensor 1 of the state.*h and c",
)
def agent_that_keeps_c(seed: int = 0) -> CleanRLAgent:
    """An agent in CleanRL's style clears h where an episode starts, but not c."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CleanRLAgent(KeepsC(), obs_shape=(4,))
