"""What adapters share, and users of StepFunction may need: flags of last steps."""

import torch
from torch import nn

from holdfast.audit import audit
from holdfast.audit.adapters import StepFunction, last_steps, zero_where_first

CELL = nn.GRUCell(3, 4)


def test_flags_of_last_steps_come_one_step_earlier():
    first = torch.tensor([[1, 0], [0, 1], [0, 0], [1, 0]], dtype=torch.bool)
    last = torch.tensor([[0, 1], [0, 0], [1, 0], [0, 0]], dtype=torch.bool)
    assert torch.equal(last_steps(first), last)


def step(obs, state, first):
    h = CELL(obs, zero_where_first(state, first, 0)[0])
    return h, (h,)


def unroll(obs, state, last):
    """As in a library that marks the last step of an episode."""
    (h,), ys = state, []
    for x, ended in zip(obs, last, strict=True):
        ys.append(CELL(x, h))
        h = ys[-1] * ~ended[:, None]
    return torch.stack(ys), (h,)


def audited(sequence):
    initial = lambda B: (torch.zeros(B, 4),)  # noqa: E731
    subject = StepFunction(step, initial, obs_shape=(3,), sequence=sequence, module=CELL, slot_axis=0)
    return {finding.check.name for finding in audit(subject, declared="boolean_flags").failures}


def test_a_library_that_marks_last_steps_is_audited_with_both_helpers():
    assert (
        audited(lambda obs, state, first: unroll(obs, zero_where_first(state, first[0], 0), last_steps(first))) == set()
    )
    assert "reset_inside_sequence" in audited(unroll)
    assert "reset_at_first_step" in audited(lambda obs, state, first: unroll(obs, state, last_steps(first)))
