"""RecurrentPPOPolicy, on a stand-in with sb3-contrib's interface. `make audit-peers` audits the real one."""

from types import SimpleNamespace

import pytest
import torch
from gymnasium.spaces import Box
from torch import nn
from torch.distributions import Categorical, Normal

from holdfast.audit import audit
from holdfast.audit.adapters import RecurrentPPOPolicy

pytestmark = pytest.mark.slow

HIDDEN, CHOICES = 6, 4


class StandIn(nn.Module):
    """Sequences slot after slot, [B * T, ...]; how many there are is read off the state."""

    observation_space = Box(-1, 1, (3,))

    def __init__(self, num_layers=1, continuous=False):
        super().__init__()
        torch.manual_seed(0)
        self.continuous = continuous
        self.lstm_actor, self.lstm_critic = nn.LSTM(3, HIDDEN, num_layers), nn.LSTM(3, HIDDEN, num_layers)
        self.head, self.value_net = nn.Linear(HIDDEN, CHOICES), nn.Linear(HIDDEN, 1)

    def unroll(self, lstm, x, state, starts):
        slots, ys = state[0].shape[1], []
        for now, began in zip(self.in_time(x, slots), self.in_time(starts, slots), strict=True):
            y, state = lstm(now.unsqueeze(0), tuple((1.0 - began).view(1, -1, 1) * leaf for leaf in state))
            ys.append(y[0])
        return torch.stack(ys, 1).flatten(0, 1), state

    def in_time(self, x, slots):
        return x.unflatten(0, (slots, -1)).transpose(0, 1)

    def get_distribution(self, obs, lstm_states, episode_starts):
        y, after = self.unroll(self.lstm_actor, obs, lstm_states, episode_starts)
        numbers = self.head(y)
        return SimpleNamespace(
            distribution=Normal(numbers, 1.0) if self.continuous else Categorical(logits=numbers)
        ), after

    def forward(self, obs, lstm_states, episode_starts):
        found, pi = self.get_distribution(obs, lstm_states.pi, episode_starts)
        y, vf = self.unroll(self.lstm_critic, obs, lstm_states.vf, episode_starts)
        actions = found.distribution.sample()
        return actions, self.value_net(y), self.log_prob(found, actions), SimpleNamespace(pi=pi, vf=vf)

    def evaluate_actions(self, obs, actions, lstm_states, episode_starts):
        found, _ = self.get_distribution(obs, lstm_states.pi, episode_starts)
        y, _ = self.unroll(self.lstm_critic, obs, lstm_states.vf, episode_starts)
        entropy = None if self.continuous else found.distribution.entropy()
        return self.value_net(y), self.log_prob(found, actions), entropy

    def predict_values(self, obs, lstm_states, episode_starts):
        return self.value_net(self.unroll(self.lstm_critic, obs, lstm_states, episode_starts)[0])

    def log_prob(self, found, actions):
        each = found.distribution.log_prob(actions)
        return each.sum(-1) if self.continuous else each


class MixesTimeAndSlots(StandIn):
    def in_time(self, x, slots):
        return x.unflatten(0, (-1, slots))


class CriticFromZeros(StandIn):
    """Learns the value from a blank memory while acting carries it."""

    def evaluate_actions(self, obs, actions, lstm_states, episode_starts):
        blank = tuple(torch.zeros_like(leaf) for leaf in lstm_states.vf)
        return super().evaluate_actions(obs, actions, SimpleNamespace(pi=lstm_states.pi, vf=blank), episode_starts)


class BootstrapsFromAnotherMemory(StandIn):
    def predict_values(self, obs, lstm_states, episode_starts):
        return super().predict_values(obs, tuple(leaf.flip(-1) for leaf in lstm_states), episode_starts)


def failed(policy):
    return {finding.check.name for finding in audit(RecurrentPPOPolicy(policy)).failures}


@pytest.mark.parametrize("more", [{}, {"num_layers": 2}, {"continuous": True}])
def test_a_sound_policy_passes(more):
    assert failed(StandIn(**more)) == set()


def test_broken_policies_fail_their_check():
    assert {"steps_equal_sequence", "log_probs_replay"} <= failed(MixesTimeAndSlots())
    assert "replay_from_stored_state" in failed(CriticFromZeros())
    assert failed(BootstrapsFromAnotherMemory()) == {"value_call_equals_acting"}


def test_sampling_observations_leaves_the_policy_s_own_space_alone():
    policy = StandIn()
    policy.observation_space = Box(-1, 1, (3,), seed=5)
    first = RecurrentPPOPolicy(policy).observations(2, torch.Generator().manual_seed(0))
    assert first.shape == (2, 3)
    assert (policy.observation_space.sample() == Box(-1, 1, (3,), seed=5).sample()).all()
