"""The recurrence of the minGRU, step by step (CPU) and by doubling (CUDA)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.recurrence.scan import Scan, run_doubling, run_steps, scan

RUNS = (run_steps, run_doubling)


def draw_case(T, reset_rate=0.2, seed=0):
    """a, b [T, 3, 2] and h [3, 2], all with gradients; a is 0 where a slot resets."""
    torch.manual_seed(seed)
    a, b = torch.rand(T, 3, 2, dtype=torch.float64), torch.randn(T, 3, 2, dtype=torch.float64)
    a *= torch.rand(T, 3, 1) >= reset_rate
    return [leaf.requires_grad_() for leaf in (a, b, torch.randn(3, 2, dtype=torch.float64))]


@pytest.mark.parametrize("run", RUNS)
def test_by_hand(run):
    """h: 2*1 + 1 = 3, 3*3 + 0 = 9, reset 4, 1*4 - 1 = 3. The gradient of the sum in b, from the end: 1, 2, 1, 4."""
    a, b = (torch.tensor(x).view(4, 1, 1).requires_grad_() for x in ([2.0, 3.0, 0.0, 1.0], [1.0, 0.0, 4.0, -1.0]))
    h = torch.ones(1, 1, requires_grad=True)
    y = Scan.apply(a, b, h, run)
    assert y.flatten().tolist() == [3.0, 9.0, 4.0, 3.0]
    da, db, dh = torch.autograd.grad(y.sum(), [a, b, h])
    assert db.flatten().tolist() == [4.0, 1.0, 2.0, 1.0]
    assert da.flatten().tolist() == [4.0 * 1, 1.0 * 3, 2.0 * 9, 1.0 * 4]
    assert dh.item() == 4.0 * 2


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("T", [1, 2, 5, 8])
def test_gradcheck(run, T):
    assert torch.autograd.gradcheck(lambda *case: Scan.apply(*case, run), draw_case(T))


@given(T=st.integers(1, 40), reset_rate=st.sampled_from([0.0, 0.1, 0.5, 1.0]), seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_both_runs_agree(T, reset_rate, seed):
    case = draw_case(T, reset_rate, seed)
    weight = torch.randn(T, 3, 2, dtype=torch.float64)
    results = []
    for run in RUNS:
        y = Scan.apply(*case, run)
        results.append([y, *torch.autograd.grad((y * weight).sum(), case)])
    for steps, doubling in zip(*results, strict=True):
        torch.testing.assert_close(steps, doubling, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("run", RUNS)
@given(T=st.integers(2, 20), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=30, deadline=None)
def test_nothing_crosses_a_reset(run, T, seed, data):
    at = data.draw(st.integers(0, T - 1))
    a, b, h = draw_case(T, 0.0, seed)
    with torch.no_grad():
        a[at] = 0.0
    y = Scan.apply(a, b, h, run)
    da, db, dh = torch.autograd.grad(y[at:].sum(), [a, b, h])
    assert (db[:at] == 0).all()
    assert (da[:at] == 0).all()
    assert (dh == 0).all()
    assert (db[at:] != 0).all()
    assert torch.equal(y[at], b[at])


def test_arguments_are_not_modified():
    case = draw_case(6)
    kept = [leaf.detach().clone() for leaf in case]
    grad = torch.ones(6, 3, 2, dtype=torch.float64)
    scan(*case).backward(grad)
    assert all(torch.equal(a, b) for a, b in zip(case, kept, strict=True))
    assert (grad == 1).all()
