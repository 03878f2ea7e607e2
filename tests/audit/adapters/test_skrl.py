"""SkrlModels, on stand-ins with the interface of skrl's models. `make audit-peers` audits real ones."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

from holdfast.audit import audit
from holdfast.audit.adapters import SkrlModels
from holdfast.errors import SettingsError

HIDDEN = 6


class StandIn(nn.Module):
    """Acts in evaluation mode, one step per call; learns in training mode, with flags of last steps."""

    num_observations, sequence_length = 3, 5
    flags = ("terminated", "truncated")

    def __init__(self, outputs=4):
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.head = nn.LSTM(3, HIDDEN, 2), nn.Linear(HIDDEN, outputs)

    def get_specification(self):
        return {"rnn": {"sequence_length": self.sequence_length, "sizes": [(2, 1, HIDDEN), (2, 1, HIDDEN)]}}

    def compute(self, inputs, role):
        x, state = inputs["observations"], inputs["rnn"]
        if not self.training:
            y, state = self.lstm(x.unsqueeze(0), tuple(state))
            return self.head(y[0]), list(state)
        T, ys = self.sequence_length, []
        done = torch.stack([inputs[flag].view(-1, T) for flag in self.flags]).any(0)
        state = [leaf.unflatten(1, (-1, T))[:, :, 0].contiguous() for leaf in state]
        for t in range(T):
            y, state = self.lstm(x.unflatten(0, (-1, T))[:, t].unsqueeze(0), tuple(state))
            state = [leaf * ~done[:, t, None] for leaf in state]
            ys.append(y[0])
        return self.head(torch.stack(ys, 1).flatten(0, 1)), state

    def act(self, inputs, *, role):
        numbers, state = self.compute(inputs, role)
        if role == "value":
            return numbers[:, :1], {"rnn": state}
        found = Categorical(logits=numbers)
        actions = found.sample().unsqueeze(-1)
        log_prob = found.log_prob(inputs.get("taken_actions", actions).view(-1)).unsqueeze(-1)
        return actions, {"log_prob": log_prob, "net_output": numbers, "rnn": state}


class IgnoresTruncation(StandIn):
    flags = ("terminated",)


class ResetsBeforeTheLastStep(StandIn):
    """Takes the flag of a last step for that of a first one."""

    def compute(self, inputs, role):
        T = self.sequence_length
        early = {flag: torch.roll(inputs[flag].view(-1, T), -1, 1).view(-1, 1) for flag in self.flags if flag in inputs}
        return super().compute({**inputs, **early}, role)


def failed(*models, **options):
    return {finding.check.name for finding in audit(SkrlModels(*models), **options).failures}


@pytest.mark.slow
def test_sound_models_pass_with_a_value_model_of_their_own_and_shared():
    assert failed(StandIn(), StandIn(1)) == set()
    shared = StandIn()
    assert failed(shared, shared, quick=True) == set()


def test_broken_models_fail_their_check():
    checks = ["reset_inside_sequence", "reset_on_terminated", "reset_on_truncated"]
    assert failed(IgnoresTruncation(), checks=checks) == {"reset_on_truncated"}
    assert "reset_inside_sequence" in failed(ResetsBeforeTheLastStep(), checks=checks)


def test_a_model_whose_sequences_have_a_fixed_length_is_refused():
    class Fixed(StandIn):
        def __getattribute__(self, name):
            if name == "sequence_length":
                raise AttributeError(name)
            return super().__getattribute__(name)

        def get_specification(self):
            return {"rnn": {"sizes": [(1, 1, HIDDEN)]}}

    with pytest.raises(SettingsError, match="Fixed has no sequence_length"):
        SkrlModels(Fixed())
