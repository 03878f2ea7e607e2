"""RslRlModels, on stand-ins with the interface of rsl_rl's models. `make audit-peers` audits real ones."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributions import Normal

from holdfast.audit import audit
from holdfast.audit.adapters import RslRlModels
from holdfast.errors import SettingsError

HIDDEN = 6


class StandIn(nn.Module):
    """Keeps its state. Learns from one padded sequence per episode, whose valid steps make up [T, B] again."""

    is_recurrent, obs_dim = True, 3

    def __init__(self, outputs, rnn: type[nn.LSTM] | type[nn.GRU] = nn.LSTM, groups=("policy",)):
        super().__init__()
        torch.manual_seed(outputs)
        self.obs_groups = groups
        self.rnn = SimpleNamespace(rnn=rnn(3, HIDDEN, 2))
        self.core, self.head = self.rnn.rnn, nn.Linear(HIDDEN, outputs)
        self.held = None

    def forward(self, obs, masks=None, hidden_state=None, stochastic_output=False):
        x = obs["policy"]
        if masks is None:
            y, self.held = self.core(x.unsqueeze(0), self.held)
        else:
            y, _ = self.core(x, hidden_state)
            y = y.transpose(0, 1)[masks.T].unflatten(0, (-1, len(x))).transpose(0, 1)
        found = self.head(y.squeeze(0))
        if not stochastic_output:
            return found
        self.found = Normal(found, 1.0)
        return self.found.sample()

    def reset(self, dones=None, hidden_state=None):
        if dones is None:
            self.held = hidden_state
            return
        for leaf in self.held if isinstance(self.held, tuple) else (self.held,):
            leaf[:, dones == 1] = 0.0

    def get_hidden_state(self):
        return self.held

    def get_latent(self, obs):
        return self.forward(obs)

    def get_output_log_prob(self, actions):
        return self.found.log_prob(actions).sum(-1)

    @property
    def output_entropy(self):
        return self.found.entropy().sum(-1)

    @property
    def output_distribution_params(self):
        return self.found.mean, self.found.stddev


class ResetsOnlyH(StandIn):
    def reset(self, dones=None, hidden_state=None):
        if dones is None:
            return super().reset(dones, hidden_state)
        self.held[0][:, dones == 1] = 0.0
        return None


class LearnsFromZeros(StandIn):
    def forward(self, obs, masks=None, hidden_state=None, **options):
        if hidden_state is not None:
            hidden_state = tuple(torch.zeros_like(leaf) for leaf in hidden_state)
        return super().forward(obs, masks, hidden_state, **options)


def failed(actor, critic, **options):
    return {finding.check.name for finding in audit(RslRlModels(actor, critic), **options).failures}


@pytest.mark.slow
def test_sound_models_pass():
    assert failed(StandIn(2), StandIn(1)) == set()
    assert failed(StandIn(2, nn.GRU), StandIn(1), quick=True) == set()


def test_broken_models_fail_their_check():
    checks = ["reset_clears_whole_state", "replay_from_stored_state"]
    assert failed(ResetsOnlyH(2), StandIn(1), checks=checks[:1]) == {"reset_clears_whole_state"}
    assert failed(StandIn(2), LearnsFromZeros(1), checks=checks) == {"replay_from_stored_state"}


def test_a_critic_with_other_observations_is_refused():
    with pytest.raises(SettingsError, match="group of observations"):
        RslRlModels(StandIn(2), StandIn(1, groups=("policy", "privileged")))
