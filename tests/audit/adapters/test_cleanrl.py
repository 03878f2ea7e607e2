"""CleanRLAgent: flat, time-major batches with the slots counted from the state."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

from holdfast.audit import audit
from holdfast.audit.adapters import CleanRLAgent
from holdfast.cli.audit_text import report_annotations
from holdfast.errors import SettingsError

OBS, HIDDEN, CHOICES = 3, 6, 4


class Agent(nn.Module):
    def __init__(self, num_layers=1):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(OBS, HIDDEN, num_layers)
        self.actor, self.critic = nn.Linear(HIDDEN, CHOICES), nn.Linear(HIDDEN, 1)

    def cleared(self, state, done):
        return tuple(leaf * (1.0 - done).view(1, -1, 1) for leaf in state)

    def in_time(self, x, slots):
        """[T * B, ...] -> [T, B, ...]"""
        return x.unflatten(0, (-1, slots))

    def get_states(self, x, lstm_state, done):
        slots, ys = lstm_state[0].shape[1], []
        for now, ended in zip(self.in_time(x, slots), self.in_time(done, slots), strict=True):
            y, lstm_state = self.lstm(now.unsqueeze(0), self.cleared(lstm_state, ended))
            ys.append(y[0])
        return torch.cat(ys), lstm_state

    def get_action_and_value(self, x, lstm_state, done, action=None):
        y, lstm_state = self.get_states(x, lstm_state, done)
        choices = Categorical(logits=self.actor(y))
        action = choices.sample() if action is None else action
        return action, choices.log_prob(action), choices.entropy(), self.critic(y), lstm_state

    def get_value(self, x, lstm_state, done):
        return self.critic(self.get_states(x, lstm_state, done)[0])


class ValueIgnoresReset(Agent):
    def get_value(self, x, lstm_state, done):
        return super().get_value(x, lstm_state, torch.zeros_like(done))


class MixesTimeAndSlots(Agent):
    def in_time(self, x, slots):
        return x.unflatten(0, (slots, -1)).transpose(0, 1)


class KeepsC(Agent):
    def cleared(self, state, done):
        return super().cleared(state, done)[0], state[1]


def failed(agent):
    return {finding.check.name for finding in audit(CleanRLAgent(agent, obs_shape=(OBS,))).failures}


def test_a_sound_agent_passes():
    assert failed(Agent()) == set()
    assert failed(Agent(num_layers=2)) == set()


def test_broken_agents_fail_their_check():
    assert {"steps_equal_sequence", "log_probs_replay"} <= failed(MixesTimeAndSlots())
    assert "reset_clears_whole_state" in failed(KeepsC())
    assert failed(ValueIgnoresReset()) == {"value_call_equals_acting"}


def test_memory_that_is_cleared_in_part_is_explained_as_such():
    report = audit(CleanRLAgent(KeepsC(), obs_shape=(OBS,)))
    shown = report.failures[0]
    assert shown.check.name == "reset_clears_whole_state"
    assert "not tensor 1 of the state" in shown.evidence
    assert [bug.name for bug in report.known_bugs] == ["ResetsOnlyH"]
    assert "reset_clears_whole_state" in report_annotations(report).splitlines()[0]


def test_a_finding_leads_to_the_agent_s_own_code():
    assert "test_cleanrl.py" in CleanRLAgent(Agent(), obs_shape=(OBS,)).where("sequence")


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_a_memory_whose_state_is_not_h_and_c_is_sent_to_another_adapter(kind):
    agent = Agent()
    agent.lstm = kind(OBS, HIDDEN)
    said = rf"Agent\.lstm is nn\.{kind.__name__}, but has to be an nn\.LSTM with the state \(h, c\)\. Use StepFunction"
    with pytest.raises(SettingsError, match=said):
        CleanRLAgent(agent, obs_shape=(OBS,))


def test_an_lstm_of_ones_own_is_taken():
    class Own(nn.Module):
        num_layers, hidden_size = 1, HIDDEN

    agent = Agent()
    agent.add_module("lstm", Own())
    assert [leaf.shape for leaf in CleanRLAgent(agent, obs_shape=(OBS,)).initial_state(2)] == [(1, 2, HIDDEN)] * 2
