"""Tokens: every object is visible, invalid tokens are ignored, and the sparse product equals the convolution."""

import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict
from torch.nn import functional as F

from holdfast.policies.parts.token_conv import OwnLinear, TokenConv2d, sparse_product
from holdfast.policies.parts.tokens import TokenGrid
from holdfast.policies.vocabulary import Vocabulary
from holdfast.spec import TokenObs, WorldSpec, keys
from support.policies import AGENTS, FEATURES, TOKENS, make, random_obs


def make_grid(spec: WorldSpec = TOKENS) -> TokenGrid:
    return TokenGrid(spec, Vocabulary.of(spec))


def dense_grid(grid: TokenGrid, tokens: torch.Tensor) -> torch.Tensor:
    """The grid [N, channels, side, side] that the tokens describe, built token by token."""
    box = torch.zeros(len(tokens), grid.num_channels, grid.side * grid.side)
    placed = grid(tokens)
    for n, cell, channel, _, weight in zip(*placed[1:], strict=True):
        box[n, channel, cell] += weight
    return box.unflatten(-1, (grid.side, grid.side))


def token(row, column, attribute, value):
    return [row << 4 | column, attribute, value]


EMPTY = [0xFF, 0xFF, 0xFF]


def observation(*tokens):
    return torch.tensor([[*tokens, *[EMPTY] * (8 - len(tokens))]], dtype=torch.uint8)


def test_a_number_is_normalised_in_its_own_channel_and_cell():
    grid = make_grid()
    box = dense_grid(grid, observation(token(0, 4, 5, 128)))
    assert grid.num_channels == 1 + 1 + 5 + 4 + 3 + 1
    assert box[0, 14, 3, 7] == 0.5  # heart channel; a 5 x 5 window sits in rows and columns 3 to 7 of 11
    assert box.sum() == 0.5


@pytest.mark.parametrize(("attribute", "categories", "channel"), [(2, 5, 2), (3, 4, 7), (4, 3, 11)])
def test_every_category_has_a_channel_even_zero(attribute, categories, channel):
    grid = make_grid()
    for value in range(categories):
        box = dense_grid(grid, observation(token(2, 2, attribute, value)))
        assert box[0, channel + value, 5, 5] == 1.0
        assert box.sum() == 1.0


def test_a_global_token_is_placed_on_the_agents_own_cell():
    grid = make_grid()
    box = dense_grid(grid, observation([0xFE, 1, 255]))
    assert box[0, 1, 5, 5] == 1.0
    assert box.sum() == 1.0


@pytest.mark.parametrize(
    "junk",
    [
        pytest.param([0x5 << 4 | 0, 0, 1], id="row outside the window"),
        pytest.param([0x0 << 4 | 9, 0, 1], id="column outside the window"),
        pytest.param([0x22, 6, 1], id="unknown attribute"),
        pytest.param([0x22, 200, 1], id="attribute far out of range"),
        pytest.param([0x22, 4, 3], id="category out of range"),
    ],
)
def test_invalid_tokens_are_ignored_with_one_warning(junk):
    grid = make_grid()
    real = token(1, 1, 4, 0)
    with pytest.warns(UserWarning, match="ignoring 1 invalid tokens"):
        box = dense_grid(grid, observation(junk, real))
    assert box.sum() == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dense_grid(grid, observation(junk, real)).sum() == 1.0


def test_empty_tokens_give_no_warning_anywhere():
    grid = make_grid()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        box = dense_grid(grid, observation(EMPTY, token(0, 0, 4, 1), EMPTY, token(4, 4, 4, 2)))
        nothing = dense_grid(grid, observation())
    assert box.sum() == 2.0
    assert nothing.sum() == 0.0


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 6), window=st.sampled_from([3, 5, 11, 13, 15]), seed=st.integers(0, 999))
def test_token_convolution_is_the_dense_convolution(n, window, seed):
    spec = replace(TOKENS, obs=TokenObs(8, (window, window), FEATURES))
    torch.manual_seed(seed)
    grid = make_grid(spec)
    conv = TokenConv2d(grid.num_channels, grid.side, 4, kernel_size=5, stride=3)
    tokens = random_obs(spec, (n,), torch.Generator().manual_seed(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = conv(grid(tokens))
        expected = F.conv2d(dense_grid(grid, tokens), conv.weight, conv.bias, stride=3)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)
    upstream = torch.randn_like(out)
    got = torch.autograd.grad(out, [conv.weight, conv.bias], upstream)
    want = torch.autograd.grad(expected, [conv.weight, conv.bias], upstream)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(entries=st.integers(0, 40), rows=st.integers(1, 6), columns=st.integers(1, 6), seed=st.integers(0, 999))
def test_sparse_product_is_the_dense_product_in_any_order_of_entries(entries, rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    row, column = (torch.randint(0, n, (entries,), generator=generator) for n in (rows, columns))
    values = torch.randn(entries, generator=generator)
    dense = torch.randn(columns, 3, generator=generator, requires_grad=True)
    matrix = torch.zeros(rows, columns).index_put((row, column), values, accumulate=True)
    out = sparse_product(row, column, values, dense, rows)  # pyright: ignore[reportCallIssue]
    torch.testing.assert_close(out, matrix @ dense)
    upstream = torch.randn(rows, 3, generator=generator)
    torch.testing.assert_close(torch.autograd.grad(out, dense, upstream)[0], matrix.T @ upstream)


@settings(max_examples=10, deadline=None)
@given(n=st.integers(1, 6), seed=st.integers(0, 999))
def test_own_linear_is_a_linear_layer_over_the_centre_of_the_grid(n, seed):
    torch.manual_seed(seed)
    grid = make_grid()
    own = OwnLinear(grid.num_channels, grid.side, 3)
    tokens = random_obs(TOKENS, (n,), torch.Generator().manual_seed(seed))
    expected = F.linear(dense_grid(grid, tokens)[:, :, 5, 5], own.weight, own.bias)
    torch.testing.assert_close(own(grid(tokens)), expected)


@settings(max_examples=10, deadline=None)
@given(n=st.integers(1, 6), seed=st.integers(0, 999))
def test_tokens_side_by_side_are_the_tokens_of_the_grid(n, seed):
    grid = make_grid()
    tokens = random_obs(TOKENS, (n,), torch.Generator().manual_seed(seed))
    tokens[0, 0] = 0xFF  # a gap before the end
    beside, placed = grid.side_by_side(tokens), grid(tokens)
    assert beside.real.shape[1] == 6, "padding after the longest observation is stripped"
    for name in ("cell", "channel", "weight", "entry"):
        assert torch.equal(getattr(beside, name)[beside.real], getattr(placed, name)), name
        assert not getattr(beside, name)[~beside.real].any()


def test_an_observation_without_tokens_has_one_padding_token():
    beside = make_grid().side_by_side(observation())
    assert beside.real.shape == (1, 1)
    assert not beside.real.any()


@pytest.mark.parametrize("name", AGENTS)
def test_no_object_is_invisible(name):
    """Changing any one token of an observation changes what the policy computes."""
    policy = make(name, "none")
    with_categories = [f for f in FEATURES if f.categories]

    def see(tokens):
        td = TensorDict({keys.OBS: tokens, keys.DONES: torch.zeros(1), keys.TRUNCATEDS: torch.zeros(1)}, [1])
        return policy(td)[keys.VALUES]

    base = observation(*[token(2, 2, f.id, 0) for f in with_categories])
    with torch.no_grad():
        seen = see(base)
        assert not torch.equal(seen, see(observation()))
        for i in range(3):
            other = base.clone()
            other[0, i, 2] = 1
            assert not torch.equal(see(other), seen)
            gone = base.clone()
            gone[0, i] = 0xFF
            assert not torch.equal(see(gone), seen)


def test_features_may_come_in_any_order():
    shuffled = replace(TOKENS, obs=replace(TOKENS.obs, features=tuple(reversed(FEATURES))))
    assert torch.equal(make_grid().channel, make_grid(shuffled).channel)
