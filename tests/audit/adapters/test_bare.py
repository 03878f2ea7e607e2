"""BareRecurrent: torch's own modules, which know no episodes."""

import pytest
import torch
from torch import nn

from holdfast.audit import audit
from holdfast.audit.adapters import BareRecurrent
from holdfast.errors import SettingsError

KINDS = [
    lambda: nn.LSTM(3, 5),
    lambda: nn.LSTM(3, 5, num_layers=2, batch_first=True),
    lambda: nn.LSTM(3, 5, proj_size=2),
    lambda: nn.GRU(3, 5, num_layers=2),
    lambda: nn.RNN(3, 5, batch_first=True),
]


def failed(module, *declared):
    subject = BareRecurrent(module)
    subject.declared = frozenset(declared)
    return {finding.check.name for finding in audit(subject).failures}


@pytest.mark.parametrize("make", KINDS)
def test_sequences_run_through_episode_ends_which_is_sound_only_when_declared(make):
    torch.manual_seed(0)
    module = make()
    found = failed(module)
    assert {"reset_inside_sequence", "steps_equal_sequence_across_resets", "gradients_stop_at_reset"} <= found
    assert not found & {"steps_equal_sequence", "slots_are_independent", "memory_is_used", "outputs_are_causal"}
    assert failed(module, "learning_without_resets") == set()


def test_a_bidirectional_module_sees_the_future():
    assert "outputs_are_causal" in failed(nn.GRU(3, 5, bidirectional=True), "learning_without_resets")


def test_dropout_makes_equal_calls_differ():
    found = failed(nn.LSTM(3, 5, num_layers=2, dropout=0.5), "learning_without_resets")
    assert {"calls_are_repeatable", "train_and_eval_agree"} <= found


@pytest.mark.parametrize("other", [nn.LSTMCell(3, 5), nn.GRUCell(3, 5), nn.Linear(3, 5)])
def test_cells_and_other_modules_are_sent_to_another_adapter(other):
    with pytest.raises(
        SettingsError, match=rf"nn\.LSTM, nn\.GRU or nn\.RNN, not {type(other).__name__}\. Use StepFunction"
    ):
        BareRecurrent(other)
