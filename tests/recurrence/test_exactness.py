"""Every core computes what the plain masked loop computes: outputs, final state and all gradients."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from holdfast.recurrence import GRU, LSTM, MinGRU, masked_loop
from holdfast.recurrence.recurrent import Recurrent


class FusedGRU(GRU):
    """GRU on the path it takes on CUDA."""

    unroll = Recurrent.unroll


CELLS = (LSTM, GRU, FusedGRU, MinGRU)
SIZES = st.tuples(*(st.integers(1, n) for n in (12, 6, 5, 6, 3)))  # T, B, I, H, L
# how often episodes open: never, rarely, often, nearly always, always
RATES = st.sampled_from([0.0, 0.05, 0.3, 0.8, 1.0])


def draw_case(cell, sizes, rate, seed, dtype=torch.float64) -> tuple[Any, Tensor, tuple[Tensor, ...], Tensor]:
    """A core with parameters of ordinary size (larger ones amplify rounding), x, start state, first."""
    T, B, I, H, L = sizes
    torch.manual_seed(seed)
    core = cell(I, H, L).to(dtype)
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.copy_(torch.randn_like(parameter) / H**0.5)
    x = torch.randn(T, B, I, dtype=dtype, requires_grad=True)
    state = tuple(torch.randn(L, B, H, dtype=dtype, requires_grad=True) for _ in core.state_shapes)
    return core, x, state, torch.rand(T, B) < rate


def run(forward, core, x, state, first, use_state=True) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs (y and final leaves), and the gradients of a random weighting of them in x, state and parameters."""
    y, final = forward(x, state, first)
    outputs = [y, *final]
    draw = torch.Generator().manual_seed(7)
    counted = outputs if use_state else [y]
    weighted = [(out * torch.randn(out.shape, generator=draw, dtype=out.dtype)).sum() for out in counted]
    loss = torch.stack(weighted).sum()
    return outputs, list(torch.autograd.grad(loss, [x, *state, *core.parameters()]))


def assert_same(ours, theirs, tolerance):
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        assert (a - b).detach().abs().max() <= tolerance * b.detach().abs().max().clamp(min=1.0)


@pytest.mark.parametrize("cell", CELLS)
@given(sizes=SIZES, rate=RATES, seed=st.integers(0, 999), use_state=st.booleans())
@settings(max_examples=80, deadline=None)
def test_equals_the_masked_loop(cell, sizes, rate, seed, use_state):
    core, x, state, first = draw_case(cell, sizes, rate, seed)
    ours = run(core, core, x, state, first, use_state)
    theirs = run(lambda *args: masked_loop(core, *args), core, x, state, first, use_state)
    assert_same(ours[0], theirs[0], 1e-13)
    assert_same(ours[1], theirs[1], 1e-12)


@pytest.mark.parametrize("cell", CELLS)
@given(sizes=SIZES, rate=RATES, seed=st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_equals_the_masked_loop_in_float32(cell, sizes, rate, seed):
    core, x, state, first = draw_case(cell, sizes, rate, seed, torch.float32)
    ours = run(core, core, x, state, first)
    theirs = run(lambda *args: masked_loop(core, *args), core, x, state, first)
    assert_same(ours[0], theirs[0], 5e-6)  # rounding; the test above shows that there is nothing else
    assert_same(ours[1], theirs[1], 5e-5)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_equals_the_masked_loop_at_the_size_of_real_segments(cell, rate):
    core, x, state, first = draw_case(cell, (32, 24, 20, 32, 2), rate, 0, torch.float32)
    ours = run(core, core, x, state, first)
    theirs = run(lambda *args: masked_loop(core, *args), core, x, state, first)
    assert_same(ours[0], theirs[0], 5e-6)
    assert_same(ours[1], theirs[1], 5e-5)


@pytest.mark.parametrize(("ours", "theirs"), [(LSTM, nn.LSTM), (GRU, nn.GRU), (FusedGRU, nn.GRU)])
@pytest.mark.parametrize("T", [1, 9])
def test_without_resets_it_equals_torchs_module(ours, theirs, T):
    core, x, state, first = draw_case(ours, (T, 5, 4, 6, 2), 0.0, 0, torch.float32)
    module = theirs(4, 6, 2)
    module.load_state_dict(core.state_dict())
    y, final = core(x, state, first)
    y_torch, final_torch = module(x, state if ours is LSTM else state[0])
    assert_same([y, *final], [y_torch, *(final_torch if ours is LSTM else (final_torch,))], 1e-6)


@pytest.mark.parametrize(("ours", "theirs"), [(LSTM, nn.LSTM), (GRU, nn.GRU)])
def test_state_dicts_interchange(ours, theirs):
    core, module = ours(3, 5, 2), theirs(3, 5, 2)
    assert list(core.state_dict()) == list(module.state_dict())
    core.load_state_dict(module.state_dict())
    module.load_state_dict(core.state_dict())


@pytest.mark.parametrize("cell", CELLS)
def test_gradcheck(cell):
    core, x, state, _ = draw_case(cell, (4, 3, 2, 3, 2), 0.0, 0)
    first = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 0]]).bool()

    def outputs(x, *state):
        y, final = core(x, state, first)
        return y, *final

    assert torch.autograd.gradcheck(outputs, (x, *state))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_non_contiguous_inputs(cell, rate):
    core, x, state, first = draw_case(cell, (7, 4, 6, 5, 2), rate, 3)
    expected = run(core, core, x, state, first)
    strided_x = x.detach().permute(1, 2, 0).contiguous().permute(2, 0, 1).requires_grad_()
    strided_state = tuple(s.detach().transpose(0, 2).contiguous().transpose(0, 2).requires_grad_() for s in state)
    strided_first = first.t().contiguous().t()
    assert not strided_x.is_contiguous()
    ours = run(core, core, strided_x, strided_state, strided_first)
    assert_same(ours[0], expected[0], 1e-13)
    assert_same(ours[1], expected[1], 1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_without_grad_the_numbers_stay_the_same(cell):
    core, x, state, first = draw_case(cell, (16, 6, 4, 5, 2), 0.2, 1, torch.float32)
    y, final = core(x, state, first)
    with torch.no_grad():
        y_plain, final_plain = core(x, state, first)
    assert not y_plain.requires_grad
    assert_same([y_plain, *final_plain], [y, *final], 2e-6)


@pytest.mark.parametrize("cell", CELLS)
def test_frozen_parameters_still_pass_gradients_to_the_input(cell):
    core, x, state, first = draw_case(cell, (6, 3, 4, 5, 2), 0.3, 2)
    expected = torch.autograd.grad(core(x, state, first)[0].sum(), [x, *state])
    core.requires_grad_(False)
    ours = torch.autograd.grad(core(x, state, first)[0].sum(), [x, *state])
    assert_same(ours, expected, 1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_a_start_state_and_input_without_grad_still_train_the_parameters(cell):
    core, x, state, first = draw_case(cell, (6, 3, 4, 5, 2), 0.3, 2)
    expected = run(core, core, x, state, first, use_state=False)[1][1 + len(state) :]
    y, _ = core(x.detach(), tuple(s.detach() for s in state), first)
    draw = torch.Generator().manual_seed(7)
    loss = (y * torch.randn(y.shape, generator=draw, dtype=y.dtype)).sum()
    assert_same(torch.autograd.grad(loss, list(core.parameters())), expected, 1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_only_the_final_state_is_used(cell):
    core, x, state, first = draw_case(cell, (6, 3, 4, 5, 2), 0.3, 4)
    leaves = [x, *state, *core.parameters()]
    ours, theirs = (
        torch.autograd.grad([leaf.square().sum() for leaf in final], leaves)
        for _, final in (core(x, state, first), masked_loop(core, x, state, first))
    )
    assert_same(ours, theirs, 1e-12)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("T", "B"), [(1, 16), (1, 40), (5, 16)])
def test_acting_rounds_like_learning_and_records_nothing(cell, T, B):
    """Bit for bit the kernel of learning, except for one step of few slots, which an LSTM computes by plain operations."""
    core, x, state, first = draw_case(cell, (T, B, 32, 32, 2), 0.0, 0, torch.float32)
    y, final = core(x, state, first)
    with torch.no_grad():
        y_acting, final_acting = core(x, state, first)
    assert not any(out.requires_grad for out in (y_acting, *final_acting))
    limit = 5e-7 if (T, B) == (1, 16) else 0.0
    for acting, learning in zip((y_acting, *final_acting), (y, *final), strict=True):
        assert float((acting - learning).abs().max()) <= limit
