"""TorchRLPolicy, on stand-ins with the interface of TorchRL's modules. `make audit-peers` audits real ones."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

from holdfast.audit import audit
from holdfast.audit.adapters import TorchRLPolicy
from holdfast.errors import SettingsError

HIDDEN = 6
MODE = {"recurrent": False}


@contextmanager
def set_recurrent_mode(mode):
    before, MODE["recurrent"] = MODE["recurrent"], mode
    yield
    MODE["recurrent"] = before


class Actor(nn.Module):
    """One step [B], or sequences [B, T] in which an episode starts from the state stored at its first step."""

    in_keys = ("observation", "h", "is_init")
    out_keys = ("features", ("next", "h"), "logits", "action", "action_log_prob")

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head = nn.GRU(3, HIDDEN, 2, batch_first=True), nn.Linear(HIDDEN, 4)

    def starts(self, data):
        return data["is_init"][..., 0]

    def get_dist(self, data):
        x, stored, first = data["observation"], data.get("h"), self.starts(data)
        if MODE["recurrent"]:
            h, ys = stored[:, 0].transpose(0, 1).contiguous(), []
            for t in range(x.shape[1]):
                if t:
                    h = torch.where(first[:, t].view(1, -1, 1), stored[:, t].transpose(0, 1), h)
                y, h = self.rnn(x[:, t : t + 1], h)
                ys.append(y)
            data["features"] = torch.cat(ys, 1)
            after = torch.zeros_like(stored)
            after[:, -1] = h.transpose(0, 1)
        else:
            h = None if stored is None else (stored * ~first.view(-1, 1, 1)).transpose(0, 1).contiguous()
            y, h = self.rnn(x.unsqueeze(1), h)
            data["features"], after = y.squeeze(1), h.transpose(0, 1)
        data["next", "h"] = after
        data["logits"] = self.head(data["features"])
        return Categorical(logits=data["logits"])

    def forward(self, data):
        found = self.get_dist(data)
        data["action"] = found.sample()
        data["action_log_prob"] = found.log_prob(data["action"])
        return data


class Critic(nn.Module):
    in_keys, out_keys = ("features",), ("state_value",)

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, data):
        data["state_value"] = self.head(data["features"])
        return data


class IgnoresFlagsWhileLearning(Actor):
    def starts(self, data):
        return super().starts(data) & (not MODE["recurrent"])


def failed(actor, critic=None, **options):
    subject = TorchRLPolicy(actor, set_recurrent_mode, critic, obs_shape=(3,))
    return {finding.check.name for finding in audit(subject, **options).failures}


def test_a_sound_policy_passes():
    assert failed(Actor(), Critic()) == set()


def test_a_broken_policy_fails_its_check():
    checks = ["reset_inside_sequence", "steps_equal_sequence"]
    assert failed(IgnoresFlagsWhileLearning(), checks=checks) == {"reset_inside_sequence"}


def test_a_policy_without_memory_is_refused():
    with pytest.raises(SettingsError, match="Critic has no "):
        TorchRLPolicy(Critic(), set_recurrent_mode, obs_shape=(3,))
