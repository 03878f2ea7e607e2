"""StepFunction: any function as a policy, whatever its state and outputs are made of."""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from holdfast.audit import audit
from holdfast.audit.adapters import StepFunction
from holdfast.errors import SettingsError

OBS, HIDDEN, CHOICES = 3, 5, 4


class Pair(NamedTuple):
    h: torch.Tensor
    c: torch.Tensor


class Net(nn.Module):
    """An LSTM cell with a head; its state is a tensor, tuple, named tuple or dict."""

    def __init__(self, kind=tuple):
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.cell = nn.GRUCell(OBS, HIDDEN) if kind is torch.Tensor else nn.LSTMCell(OBS, HIDDEN)
        self.head = nn.Linear(HIDDEN, CHOICES)

    def packed(self, *leaves):
        if self.kind is torch.Tensor:
            return leaves[0]
        if self.kind is dict:
            return {"h": leaves[0], "c": leaves[1]}
        return self.kind(*leaves) if self.kind is Pair else self.kind(leaves)

    def unpacked(self, state):
        if self.kind is torch.Tensor:
            return (state,)
        return tuple(state.values()) if self.kind is dict else tuple(state)

    def initial_state(self, B):
        return self.packed(torch.zeros(B, HIDDEN), torch.zeros(B, HIDDEN))

    def clear(self, state, first):
        return tuple(leaf * (first == 0).float()[:, None] for leaf in self.unpacked(state))

    def advance(self, obs, state, first):
        h, *rest = self.clear(state, first)
        if not rest:
            h = self.cell(obs, h)
            return h, self.packed(h)
        h, c = self.cell(obs, (h, *rest))
        return h, self.packed(h, c)

    def step(self, obs, state, first):
        y, state = self.advance(obs, state, first)
        return self.head(y), state

    def unroll(self, obs, state, first):
        steps = []
        for x, now in zip(obs, first, strict=True):
            y, state = self.step(x, state, now)
            steps.append(y)
        return torch.stack(steps), state


class Sampling(Net):
    """Draws actions, and scores those it is given."""

    def step(self, obs, state, first):
        y, state = self.advance(obs, state, first)
        actions = torch.multinomial(self.head(y).softmax(-1), 1).squeeze(-1)
        return {"actions": actions, **self.scores(y, actions)}, state

    def unroll(self, obs, state, first, actions):
        ys = []
        for x, now in zip(obs, first, strict=True):
            y, state = self.advance(x, state, now)
            ys.append(y)
        return self.scores(torch.stack(ys), actions), state

    def scores(self, y, actions):
        log_probs = self.head(y).log_softmax(-1)
        return {"log_prob": log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1), "full_log_probs": log_probs}


class RunsThrough(Net):
    def unroll(self, obs, state, first):
        return super().unroll(obs, state, torch.zeros_like(first))


class KeepsC(Net):
    def clear(self, state, first):
        return super().clear(state, first)[0], state[1]


def subject_from_settings(net, **more):
    return StepFunction(net.step, net.initial_state, obs_shape=(OBS,), sequence=net.unroll, slot_axis=0, **more)


def failed(subject):
    return {finding.check.name for finding in audit(subject).failures}


@pytest.mark.parametrize("kind", [torch.Tensor, tuple, list, dict, Pair])
def test_a_sound_policy_passes_whatever_its_state_is_made_of(kind):
    assert failed(subject_from_settings(Net(kind))) == set()


def test_a_policy_that_draws_actions_is_given_them_to_score():
    report = audit(subject_from_settings(Sampling()))
    assert report.sound
    assert next(f for f in report.findings if f.check.name == "log_probs_replay").verdict == "pass"


def test_broken_policies_fail_their_check():
    assert "reset_inside_sequence" in failed(subject_from_settings(RunsThrough()))
    assert "reset_clears_whole_state" in failed(subject_from_settings(KeepsC()))


def test_a_plain_function_without_sequences_and_with_several_outputs():
    net = Net()

    def step(obs, state, first):
        y, state = net.advance(obs, state, first)
        return (net.head(y), y.sum(-1)), state

    subject = StepFunction(
        step,
        net.initial_state,
        observations=lambda N, generator: torch.rand(N, OBS, generator=generator),
        slot_axis=0,
        name="mine",
    )
    report = audit(subject)
    assert report.sound
    assert report.name == "mine"
    assert "test_step_function.py" in subject.where("sequence")


def test_a_module_brings_its_weights():
    net = Net()
    assert subject_from_settings(net).module is net


def test_it_is_named_after_the_class_of_the_instance_not_where_the_method_was_inherited_from():
    assert subject_from_settings(KeepsC()).name == "KeepsC.step"
    assert subject_from_settings(Net()).name == "Net.step"


def test_what_is_observed_has_to_be_said():
    net = Net()
    with pytest.raises(SettingsError, match="give obs_shape"):
        StepFunction(net.step, net.initial_state)
