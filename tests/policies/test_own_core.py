"""A recurrent core of the user's own, and the names that must not hide it."""

import inspect

import pytest
import torch
from torch import nn

from holdfast.audit import audit
from holdfast.audit.adapters import ContractPolicy
from holdfast.errors import SettingsError
from holdfast.policies import LSTMWrapper
from holdfast.recurrence import CellCore, Core, masked_loop
from holdfast.recurrence.recurrent import LSTM
from support.policies import VECTOR, random_actions, random_arrivals, random_state, score


class OwnCore(LSTMWrapper):
    def __init__(self, spec, cell: nn.Module, num_leaves: int):
        super().__init__(spec, input_size=6, hidden_size=8, core=CellCore(cell, 6, 8, num_leaves))
        self.encoder = nn.Linear(spec.obs.shape[0], 6)
        self.actor = nn.Linear(8, len(spec.actions.names))
        self.critic = nn.Linear(8, 1)

    def encode_observations(self, observations):
        return torch.tanh(self.encoder(observations))

    def decode_actions(self, hidden):
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


CELLS = {"lstm": lambda: (nn.LSTMCell(6, 8), 2), "gru": lambda: (nn.GRUCell(6, 8), 1)}


@pytest.mark.parametrize("name", CELLS)
def test_a_core_of_ones_own_trains_every_weight_and_is_sound(name):
    torch.manual_seed(0)
    policy = OwnCore(VECTOR, *CELLS[name]())
    inputs = random_arrivals(VECTOR, 5, 3, seed=0)
    actions = random_actions(VECTOR, (5, 3), torch.Generator().manual_seed(0))
    out = score(policy, inputs, random_state(policy, 3, 0), actions)
    (out["act_log_prob"].sum() + out["values"].sum()).backward()
    assert all(p.grad is not None and p.grad.any() for p in policy.parameters())
    report = audit(ContractPolicy(policy, lambda N, generator: torch.randn(N, 3, generator=generator)), quick=True)
    assert report.sound, report.failures


def test_a_cell_computes_what_the_fused_lstm_computes():
    torch.manual_seed(0)
    cell = nn.LSTMCell(6, 8)
    fused = LSTM(6, 8, 1)
    fused.load_state_dict({f"{name}_l0": tensor for name, tensor in cell.state_dict().items()})
    first = torch.rand(7, 3) < 0.3
    x, state = torch.randn(7, 3, 6), (torch.randn(1, 3, 8), torch.randn(1, 3, 8))
    ours, theirs = CellCore(cell, 6, 8, 2)(x, state, first), masked_loop(fused, x, state, first)
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(ours[1], theirs[1])


@pytest.mark.parametrize("name", ["lstm", "memory", "forward", "act"])
def test_a_module_under_a_name_the_class_uses_is_refused(name):
    policy = OwnCore(VECTOR, nn.GRUCell(6, 8), 1)
    with pytest.raises(SettingsError, match=rf"self\.{name}, which is a method of .*Choose another name") as refused:
        setattr(policy, name, nn.LSTMCell(6, 8))
    assert ("self.core = LSTMCell(...)" in str(refused.value)) == (name == "lstm")


@pytest.mark.parametrize("name", ["act", "score", "predict_values", "unroll"])
def test_a_function_does_not_replace_a_method_of_the_contract(name):
    with pytest.raises(SettingsError, match=rf"self\.{name}"):
        setattr(OwnCore(VECTOR, nn.GRUCell(6, 8), 1), name, torch.tanh)


def test_a_forward_from_a_mixin_is_the_one_that_is_trained():
    class Doubles:
        def forward(self, td, state=None, action=None):
            out = super().forward(td, state, action)  # type: ignore[misc]
            out["values"] = 2 * out["values"]
            return out

    class Mixed(Doubles, OwnCore):
        pass

    torch.manual_seed(0)
    mixed = Mixed(VECTOR, nn.GRUCell(6, 8), 1)
    plain = OwnCore(VECTOR, nn.GRUCell(6, 8), 1)
    plain.load_state_dict(mixed.state_dict())
    inputs = random_arrivals(VECTOR, 1, 3, seed=0)
    state = random_state(plain, 3, 0)
    assert torch.equal(mixed.predict_values(inputs, state), 2 * plain.predict_values(inputs, state))
    torch.testing.assert_close(mixed.act(inputs, state).values, 2 * plain.act(inputs, state).values)


def test_other_names_and_the_core_may_be_assigned():
    policy = OwnCore(VECTOR, nn.GRUCell(6, 8), 1)
    policy.second = nn.Linear(2, 2)
    policy.core = CellCore(nn.LSTMCell(6, 8), 6, 8, 2)
    assert policy.state_shapes == ((1, 8), (1, 8))


class SloppyCore(Core):
    """Ignores the flags."""

    def __init__(self):
        super().__init__(6, 8, 1)
        self.rnn = nn.GRU(6, 8)

    def forward(self, x, state, first):
        y, h = self.rnn(x, state[0])
        return y, (h,)


def test_an_audit_leads_to_the_core_of_ones_own():
    policy = OwnCore(VECTOR, nn.GRUCell(6, 8), 1)
    subject = ContractPolicy(policy, lambda n, generator: torch.randn(n, *VECTOR.obs.shape, generator=generator))
    own = inspect.getsourcelines(OwnCore)[1]
    assert subject.where("step").endswith(f"test_own_core.py:{own}")  # CellCore is Holdfast's
    policy.core = SloppyCore()
    found = audit(subject, checks=["reset_inside_sequence"]).failures[0]
    assert found.where.endswith(f"test_own_core.py:{inspect.getsourcelines(SloppyCore.forward)[1]}")
    assert found.cause == "`first` has no effect"
    assert subject.where("rebuild").endswith(f"test_own_core.py:{inspect.getsourcelines(OwnCore.__init__)[1]}")
