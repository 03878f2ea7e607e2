"""RlGamesModel, on a stand-in with the interface of rl_games' models. `make audit-peers` audits real ones."""

import torch
from torch import nn
from torch.distributions import Categorical

from holdfast.audit import audit
from holdfast.audit.adapters import RlGamesModel

HIDDEN = 6


class StandIn(nn.Module):
    """Sequences slot after slot, [B * T, ...], with flags of first steps; rl_games squeezes log-probs."""

    normalize_value = False

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head = nn.GRU(3, HIDDEN, 2), nn.Linear(HIDDEN, 5)

    def get_default_rnn_state(self):
        return (torch.zeros(2, 7, HIDDEN),)

    def in_time(self, x, T):
        return x.unflatten(0, (-1, T)).transpose(0, 1)

    def forward(self, inputs):
        T, (state,), ys = inputs.get("seq_length", 1), inputs["rnn_states"], []
        dones = inputs.get("dones", torch.zeros(len(inputs["obs"])))
        for x, done in zip(self.in_time(inputs["obs"], T), self.in_time(dones, T), strict=True):
            y, state = self.rnn(x.unsqueeze(0), state * (1.0 - done.float()).view(1, -1, 1))
            ys.append(y[0])
        numbers = self.head(torch.stack(ys, 1).flatten(0, 1))
        found = Categorical(logits=numbers[:, 1:])
        outputs = {"values": numbers[:, :1], "logits": found.logits, "rnn_states": (state,)}
        if inputs["is_train"]:
            neglogp = -found.log_prob(inputs["prev_actions"])
            return {**outputs, "prev_neglogp": neglogp.squeeze(), "entropy": found.entropy()}
        actions = found.sample()
        return {**outputs, "neglogpacs": -found.log_prob(actions).squeeze(), "actions": actions}


class MixesTimeAndSlots(StandIn):
    def in_time(self, x, T):
        return x.unflatten(0, (T, -1))


class IgnoresFlagsOfOneSequence(StandIn):
    """What RnnWithDones of rl_games 1.6.5 does."""

    def forward(self, inputs):
        one = len(inputs["obs"]) == inputs.get("seq_length", 1)
        return super().forward({key: x for key, x in inputs.items() if not (one and key == "dones")})


class NormalizesValues(StandIn):
    """Learns values of another scale, as rl_games does with normalize_value."""

    normalize_value = True

    def forward(self, inputs):
        outputs = super().forward(inputs)
        return outputs if inputs["is_train"] else {**outputs, "values": 10 * outputs["values"]}


def failed(model, **options):
    return {finding.check.name for finding in audit(RlGamesModel(model, obs_shape=(3,)), **options).failures}


def test_a_sound_model_passes():
    assert failed(StandIn()) == set()
    assert failed(NormalizesValues(), quick=True) == set()


def test_broken_models_fail_their_check():
    checks = ["reset_inside_sequence", "reset_with_one_slot", "steps_equal_sequence"]
    assert "steps_equal_sequence" in failed(MixesTimeAndSlots(), checks=checks)
    assert failed(IgnoresFlagsOfOneSequence(), checks=checks) == {"reset_with_one_slot"}
