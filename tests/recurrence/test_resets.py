"""Episodes and slots are separate, and T calls of one step equal one call of T steps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.recurrence import GRU, LSTM, MinGRU
from holdfast.recurrence.recurrent import Recurrent


class FusedGRU(GRU):
    """GRU on the path it takes on CUDA."""

    unroll = Recurrent.unroll


CELLS = (LSTM, GRU, FusedGRU, MinGRU)
T, B, I, H, L = 10, 5, 3, 6, 2


def make_case(cell, seed=0, scale=1.0):
    torch.manual_seed(seed)
    core = cell(I, H, L)
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.mul_(scale)
    state = tuple(torch.randn(L, B, H) for _ in core.state_shapes)
    return core, torch.randn(T, B, I), state, torch.rand(T, B) < 0.25


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("scale", [1.0, 3.0])
@given(t=st.integers(0, T - 1), b=st.integers(0, B - 1), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_no_gradient_crosses_a_first(cell, scale, t, b, seed):
    core, x, state, first = make_case(cell, seed, scale)
    first[t, b] = True
    x.requires_grad_()
    state = tuple(leaf.requires_grad_() for leaf in state)
    y, final = core(x, state, first)
    later = y[t:, b].sum() + sum(leaf[:, b].sum() for leaf in final)
    dx, *dstate = torch.autograd.grad(later, [x, *state])
    assert (dx[:t, b] == 0).all()
    assert all((leaf[:, b] == 0).all() for leaf in dstate)
    assert (dx[t, b] != 0).any()


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_flow_within_an_episode(cell):
    core, x, state, first = make_case(cell)
    first[:] = False
    first[4] = True
    x.requires_grad_()
    state = tuple(leaf.requires_grad_() for leaf in state)
    y, _ = core(x, state, first)
    dx, *dstate = torch.autograd.grad(y[3].sum(), [x, *state], retain_graph=True)
    assert (dx[:4] != 0).all()
    assert all((leaf != 0).any() for leaf in dstate)
    (dx,) = torch.autograd.grad(y[T - 1].sum(), [x])
    assert (dx[4:] != 0).all()
    assert (dx[:4] == 0).all()


@pytest.mark.parametrize("cell", CELLS)
@given(t=st.integers(0, T - 1), b=st.integers(0, B - 1), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_nothing_before_a_first_changes_anything_after_it(cell, t, b, seed):
    core, x, state, first = make_case(cell, seed)
    first[t, b] = True
    y, final = core(x, state, first)
    other_x, other_state = x.clone(), tuple(leaf.clone() for leaf in state)
    other_x[:t, b] = 50 * torch.randn(t, I)
    size = 5.0 if cell is FusedGRU else 1e6  # a blank step shuts gates against 1e4; no GRU state gets beyond 1
    for leaf in other_state:
        leaf[:, b] = size * torch.randn(L, H)
    other_y, other_final = core(other_x, other_state, first)
    assert torch.equal(y[t:, b], other_y[t:, b])
    assert all(torch.equal(leaf[:, b], other[:, b]) for leaf, other in zip(final, other_final, strict=True))


@pytest.mark.parametrize("cell", CELLS)
def test_a_nan_start_state_is_reset(cell):
    core, x, state, first = make_case(cell)
    first[0] = True
    broken = tuple(torch.full_like(leaf, float("nan")) for leaf in state)
    y, final = core(x, broken, first)
    expected_y, expected_final = core(x, core.initial_state(B), first)
    assert torch.equal(y, expected_y)
    assert all(torch.equal(a, b) for a, b in zip(final, expected_final, strict=True))


@pytest.mark.parametrize("cell", CELLS)
@given(seed=st.integers(0, 99), slots=st.permutations(range(B)), num=st.integers(1, B))
@settings(max_examples=25, deadline=None)
def test_slots_are_separate(cell, seed, slots, num):
    """Any subset of slots in any order gives each of them the same result."""
    core, x, state, first = make_case(cell, seed)
    y, final = core(x, state, first)
    slots = torch.tensor(slots[:num])
    y_some, final_some = core(x[:, slots], tuple(leaf[:, slots] for leaf in state), first[:, slots])
    torch.testing.assert_close(y_some, y[:, slots], rtol=0, atol=1e-6)
    for leaf, expected in zip(final_some, final, strict=True):
        torch.testing.assert_close(leaf, expected[:, slots], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("scale", "tolerance"), [(1.0, 1e-6), (1.7, 3e-6)])
@pytest.mark.parametrize("rate", [0.0, 0.03, 0.3])
def test_step_is_sequence(cell, scale, tolerance, rate):
    """Acting: 32 calls of one step without grad. Learning: one call of 32 steps with grad."""
    torch.manual_seed(5)
    core = cell(16, 24, 2)
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.mul_(scale)
    x, first = torch.randn(32, 8, 16), torch.rand(32, 8) < rate
    state = tuple(torch.rand_like(leaf) for leaf in core.initial_state(8))
    y, final = core(x, state, first)
    with torch.no_grad():
        steps = []
        for x_t, first_t in zip(x.split(1), first.split(1), strict=True):
            step, state = core(x_t, state, first_t)
            steps.append(step)
    torch.testing.assert_close(torch.cat(steps), y, rtol=0, atol=tolerance)
    for leaf, expected in zip(state, final, strict=True):
        torch.testing.assert_close(leaf, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("cell", CELLS)
def test_two_halves_equal_the_whole(cell):
    core, x, state, first = make_case(cell, 3)
    y, final = core(x, state, first)
    y_1, between = core(x[:4], state, first[:4])
    y_2, final_2 = core(x[4:], between, first[4:])
    torch.testing.assert_close(torch.cat([y_1, y_2]), y, rtol=0, atol=1e-6)
    for leaf, expected in zip(final_2, final, strict=True):
        torch.testing.assert_close(leaf, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cell", CELLS)
def test_a_first_at_every_step_starts_every_step_from_zero(cell):
    core, x, state, first = make_case(cell)
    y, final = core(x, state, torch.ones_like(first))
    alone, zero = x.reshape(1, T * B, I), core.initial_state(T * B)
    y_alone, final_alone = core(alone, zero, torch.zeros(1, T * B))
    torch.testing.assert_close(y, y_alone.view(T, B, H), rtol=0, atol=1e-6)
    for leaf, expected in zip(final, final_alone, strict=True):
        torch.testing.assert_close(leaf, expected[:, -B:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32])
def test_first_may_be_numbers(cell, dtype):
    core, x, state, first = make_case(cell)
    y, final = core(x, state, first)
    numbers = first.to(dtype) * 2
    y_numbers, final_numbers = core(x, state, numbers)
    assert torch.equal(y, y_numbers)
    assert all(torch.equal(a, b) for a, b in zip(final, final_numbers, strict=True))


@pytest.mark.parametrize("cell", CELLS)
def test_arguments_are_not_modified(cell):
    core, x, state, first = make_case(cell)
    kept = [t.clone() for t in (x, *state, first)]
    y, final = core(x, state, first)
    y.detach().zero_()
    for leaf in final:
        leaf.detach().zero_()
    assert all(torch.equal(a, b) for a, b in zip((x, *state, first), kept, strict=True))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_the_final_state_is_not_a_view_of_the_output(cell, layers):
    core = cell(I, H, layers)
    _, x, _, first = make_case(cell)
    with torch.no_grad():
        y, final = core(x[:1], core.initial_state(B), first[:1])
        kept = y.clone()
        for leaf in final:
            leaf.zero_()
    assert torch.equal(y, kept)
