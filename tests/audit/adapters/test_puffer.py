"""PufferPolicy and MettaGridLSTM: state in a dict, and no flags when learning unless asked for."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn

from holdfast.audit import UnusableError, audit
from holdfast.audit.adapters import MettaGridLSTM, PufferPolicy

OBS, CHOICES = 3, 4


class Wrapped(nn.Module):
    """A cell to act, a layer with the same weights to learn."""

    hidden_size = 6

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(OBS, self.hidden_size)
        self.cell = nn.LSTMCell(OBS, self.hidden_size)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self.cell, name, getattr(self.lstm, f"{name}_l0"))
        self.actor, self.critic = nn.Linear(self.hidden_size, CHOICES), nn.Linear(self.hidden_size, 1)

    def forward_eval(self, observations, state):
        state["lstm_h"], state["lstm_c"] = self.cell(observations, (state["lstm_h"], state["lstm_c"]))
        return self.actor(state["lstm_h"]), self.critic(state["lstm_h"])

    def forward(self, observations, state):
        y, (h, c) = self.lstm(self.time_first(observations), (state["lstm_h"], state["lstm_c"]))
        state["lstm_h"], state["lstm_c"] = h.detach(), c.detach()
        y = y.transpose(0, 1)
        return self.actor(y).flatten(0, 1), self.critic(y).squeeze(-1)

    def time_first(self, x):
        return x.transpose(0, 1)


class ReshapesInsteadOfTransposing(Wrapped):
    def time_first(self, x):
        return x.reshape(x.shape[1], x.shape[0], *x.shape[2:])


class ForgetsToStore(Wrapped):
    def forward_eval(self, observations, state):
        return super().forward_eval(observations, dict(state))


class OneNet(nn.Module):
    """MettaGrid's style: the same code for both, state [B, layers, hidden] or [B, hidden], maybe scaled by the batch."""

    hidden_size = 6

    def __init__(self, limit=float("inf")):
        super().__init__()
        torch.manual_seed(0)
        self.limit = limit
        self.lstm = nn.LSTM(OBS, self.hidden_size, batch_first=True)
        self.actor, self.critic = nn.Linear(self.hidden_size, CHOICES), nn.Linear(self.hidden_size, 1)

    def forward_eval(self, observations, state):
        x = observations.float() / 255
        x = (x / 255 if x.max() > self.limit else x).view(len(x), -1, OBS)
        h, c = (state[key].view(len(x), 1, -1).transpose(0, 1) for key in ("lstm_h", "lstm_c"))
        y, (h, c) = self.lstm(x, (h, c))
        state["lstm_h"], state["lstm_c"] = h.transpose(0, 1), c.transpose(0, 1)
        y = y.flatten(0, 1)
        return self.actor(y), self.critic(y)

    forward = forward_eval


def metta_subject(net):
    space = Box(0, 255, (OBS,), dtype=np.uint8)
    return MettaGridLSTM(
        SimpleNamespace(network=lambda: net, _policy_env_info=SimpleNamespace(observation_space=space))
    )


SUBJECTS = {
    "puffer": lambda: PufferPolicy(Wrapped(), obs_shape=(OBS,)),
    "mettagrid": lambda: metta_subject(OneNet()),
}


def failed(subject, *declared):
    subject.declared = frozenset(declared)
    return {finding.check.name for finding in audit(subject).failures}


@pytest.mark.parametrize("make", SUBJECTS.values(), ids=SUBJECTS.keys())
def test_learning_without_flags_is_a_finding_unless_declared(make):
    found = failed(make())
    assert {"reset_inside_sequence", "steps_equal_sequence_across_resets"} <= found
    assert not found & {"steps_equal_sequence", "slots_are_independent", "memory_is_used"}
    assert failed(make(), "learning_without_resets") == set()


def test_learning_that_looks_at_the_flags_is_sound():
    class Resets(Wrapped):
        def forward(self, observations, state):
            h, c = state["lstm_h"][0], state["lstm_c"][0]
            outputs = []
            for obs, done in zip(observations.unbind(1), state["done"].unbind(1), strict=True):
                kept = (done == 0).float()[:, None]
                h, c = self.cell(obs, (h * kept, c * kept))
                outputs.append(h)
            state["lstm_h"], state["lstm_c"] = h.unsqueeze(0), c.unsqueeze(0)
            y = torch.stack(outputs, 1)
            return self.actor(y).flatten(0, 1), self.critic(y).squeeze(-1)

    assert failed(PufferPolicy(Resets(), obs_shape=(OBS,), flags_while_learning=True)) == set()


def test_broken_policies_fail_their_check_even_so():
    mixed = PufferPolicy(ReshapesInsteadOfTransposing(), obs_shape=(OBS,))
    assert {"steps_equal_sequence", "slots_are_independent"} <= failed(mixed, "learning_without_resets")
    forgetful = PufferPolicy(ForgetsToStore(), obs_shape=(OBS,))
    assert "memory_is_used" in failed(forgetful, "learning_without_resets")


def test_a_scale_taken_from_the_batch_is_found():
    found = failed(metta_subject(OneNet(limit=0.9)), "learning_without_resets")
    assert {"slots_are_independent", "batch_independent", "steps_equal_sequence"} <= found


def test_a_call_that_fails_is_named_with_the_shapes_handed_in():
    class StateWithoutALayer(Wrapped):
        def forward(self, observations, state):
            state["lstm_h"], state["lstm_c"] = state["lstm_h"].view(len(observations), 6, 1), state["lstm_c"]
            return super().forward(observations, state)

    said = (
        r"StateWithoutALayer.forward\(observations \[4, 6, 3\], state: lstm_h \[1, 4, 6\], lstm_c \[1, 4, 6\]\) raised"
    )
    with pytest.raises(UnusableError, match=rf"{said} RuntimeError: .* at .*test_puffer\.py:\d+$"):
        audit(PufferPolicy(StateWithoutALayer(), obs_shape=(OBS,)))


def test_several_choices_and_continuous_ones_are_compared():
    class Several(Wrapped):
        def forward_eval(self, observations, state):
            logits, value = super().forward_eval(observations, state)
            return logits.split(2, -1), value

        def forward(self, observations, state):
            logits, value = super().forward(observations, state)
            return torch.distributions.Normal(logits[:, :2], logits[:, 2:].exp()), value

    subject = PufferPolicy(Several(), obs_shape=(OBS,))
    first = torch.zeros(2, 1, dtype=torch.bool)
    state = subject.initial_state(1)
    assert subject.step(torch.zeros(1, OBS), state, first[0])[0]["logits"].shape == (1, CHOICES)
    assert subject.sequence(torch.zeros(2, 1, OBS), state, first, None)[0]["logits"].shape == (2, 1, CHOICES)
