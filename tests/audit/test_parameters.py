"""parameters_get_gradients: unused parameters are named, and zero gradients by accident are no failure."""

# pyright: reportCallIssue=false, reportArgumentType=false
# torch types every attribute of a module as `Tensor | Module`.

import pytest
import torch
from torch import nn

from audit.mutants import ReferencePolicy
from audit.mutants.reference_policy import HIDDEN
from holdfast.audit import Subject, Verdict, audit
from holdfast.audit.adapters import ContractPolicy, StepFunction
from holdfast.policies import LSTMWrapper
from support.findings import only
from support.policies import VECTOR, random_obs

CHECK = "parameters_get_gradients"


class HasExtraLayer(ReferencePolicy):
    """A layer is registered; subclasses decide whether and how it is used."""

    def network(self):
        network = super().network()
        network.add_module("extra", self.layer())
        return network

    def layer(self):
        return nn.Linear(HIDDEN, HIDDEN)


class UnusedLayer(HasExtraLayer):
    pass


class UnusedLSTM(HasExtraLayer):
    def layer(self):
        return nn.LSTM(HIDDEN, HIDDEN, num_layers=2)


class DetachedLayer(HasExtraLayer):
    def encode(self, obs):
        return super().encode(obs) + self.module.extra(super().encode(obs)).detach()


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (UnusedLayer, "no gradient reaches extra.weight, extra.bias,"),
        (DetachedLayer, "no gradient reaches extra.weight, extra.bias,"),
        (UnusedLSTM, "extra.weight_ih_l0, extra.weight_hh_l0, extra.bias_ih_l0, extra.bias_hh_l0 and 4 more"),
    ],
)
def test_unused_parameters_are_named(kind, named):
    finding = only(kind(), CHECK)
    assert finding.verdict == Verdict.FAIL
    assert named in finding.evidence


class FrozenLayer(HasExtraLayer):
    def layer(self):
        return super().layer().requires_grad_(False)


class StartsAtZero(HasExtraLayer):
    """A residual branch whose last layer starts at zero, so that the first gets no gradient before an update."""

    def layer(self):
        layers = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN))
        nn.init.zeros_(layers[1].weight)
        return layers

    def encode(self, obs):
        x = super().encode(obs)
        return x + self.module.extra(x)


class UnitsAreOff(HasExtraLayer):
    """With its first weights every unit of the ReLU is off."""

    def layer(self):
        layer = super().layer()
        nn.init.constant_(layer.bias, -1.5)
        return layer

    def encode(self, obs):
        x = super().encode(obs)
        return x + torch.relu(self.module.extra(x))


class OnlyForTheCritic(HasExtraLayer):
    def heads(self, y):
        return super().heads(y)[0], super().heads(self.module.extra(y))[1]


class OnlyForTheActor(HasExtraLayer):
    def heads(self, y):
        return super().heads(self.module.extra(y))[0], super().heads(y)[1]


class UsedRarely(HasExtraLayer):
    """Used only for observations that few scripts contain."""

    def encode(self, obs):
        x = super().encode(obs)
        return torch.where(obs[..., :1] > 1.5, x + self.module.extra(x), x)


@pytest.mark.parametrize(
    "kind", [FrozenLayer, StartsAtZero, UnitsAreOff, OnlyForTheCritic, OnlyForTheActor, UsedRarely]
)
def test_a_zero_gradient_by_accident_is_no_failure(kind):
    for seed in range(3):
        finding = only(kind(seed), CHECK, seed=seed)
        assert finding.verdict == Verdict.PASS, finding.evidence


def test_the_check_leaves_weights_as_they_were():
    subject = UnusedLayer()
    kept = {name: x.clone() for name, x in subject.module.state_dict().items()}
    audit(subject, checks=[CHECK])
    assert all(torch.equal(x, kept[name]) for name, x in subject.module.state_dict().items())


def test_without_parameters_or_outputs_it_cannot_run():
    class NoGradients(ReferencePolicy):
        def sequence(self, obs, state, first, actions):
            with torch.no_grad():
                return super().sequence(obs, state, first, actions)

    class NoValue(UnusedLayer):
        sequence, act = Subject.sequence, Subject.act

        def step(self, obs, state, first):
            outputs, state = super().step(obs, state, first)
            return {"logits": outputs["full_log_probs"]}, state

    no_module = StepFunction(
        lambda obs, state, first: ({"logits": obs + state}, obs),
        lambda B: torch.zeros(B, 3),
        obs_shape=(3,),
        slot_axis=0,
    )
    for subject, reason in (
        (NoGradients(), "no output has a gradient"),
        (NoValue(), "returns only logits"),
        (no_module, "no `module` is set"),
    ):
        finding = only(subject, CHECK)
        assert finding.verdict == Verdict.NOT_RUN
        assert reason in finding.evidence


def test_a_policy_class_with_its_own_unused_cell_is_caught():
    class OwnCell(LSTMWrapper):
        def __init__(self, spec):
            super().__init__(spec, input_size=8, hidden_size=8, num_layers=1)
            self.encoder, self.own_cell = nn.Linear(3, 8), nn.GRUCell(8, 8)
            self.actor, self.critic = nn.Linear(8, 2), nn.Linear(8, 1)

        def encode_observations(self, observations):
            return self.encoder(observations)

        def decode_actions(self, hidden):
            return self.actor(hidden), self.critic(hidden).squeeze(-1)

    subject = ContractPolicy(OwnCell(VECTOR), lambda n, generator: random_obs(VECTOR, (n,), generator))
    finding = only(subject, CHECK)
    assert finding.verdict == Verdict.FAIL
    assert "own_cell.weight_ih, own_cell.weight_hh, own_cell.bias_ih, own_cell.bias_hh" in finding.evidence
