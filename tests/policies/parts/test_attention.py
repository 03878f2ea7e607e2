"""Attention over tokens: every cell has its own code; order and padding do not matter."""

import pytest
import torch

from holdfast.policies.parts.attention import FourierEmbedding, LatentAttention, SelfAttention, TokenFeatures


@pytest.mark.parametrize("side", [11, 17])
@pytest.mark.parametrize("num_freqs", [4, 8])
def test_every_cell_has_its_own_code(side, num_freqs):
    waves = FourierEmbedding(3, side, 8, num_freqs).waves.double()
    assert waves.shape == (side * side, 4 * num_freqs)
    assert torch.pdist(waves).min() > 0.1


def test_a_cell_has_the_same_code_in_any_window():
    small, large = FourierEmbedding(3, 11, 8, 4).waves, FourierEmbedding(3, 17, 8, 4).waves
    assert torch.equal(small.view(11, 11, -1), large.view(17, 17, -1)[3:14, 3:14])


def make_tokens(N=3, K=5, width=6):
    real = torch.ones(N, K, dtype=torch.bool)
    real[0, 3:] = False
    return TokenFeatures(torch.randn(N, K, width) * real.unsqueeze(-1), real)


@pytest.mark.parametrize("num_queries", [1, 4])
def test_latent_attention_ignores_order_and_padding(num_queries):
    torch.manual_seed(0)
    attention = LatentAttention(6, num_queries, 8, 2, 2, 7)
    tokens = make_tokens()
    out = attention(tokens)
    assert out.shape == ((3, 7) if num_queries == 1 else (3, 4, 7))
    order = torch.tensor([4, 2, 0, 3, 1])
    torch.testing.assert_close(attention(TokenFeatures(tokens.x[:, order], tokens.real[:, order])), out)
    padded = TokenFeatures(
        torch.cat([tokens.x, torch.randn(3, 2, 6)], 1), torch.cat([tokens.real, tokens.real[:, :2] & False], 1)
    )
    torch.testing.assert_close(attention(padded), out)
    nothing = TokenFeatures(tokens.x * 0, tokens.real & False)
    assert attention(nothing).isfinite().all()


def test_self_attention_ignores_order_and_padding():
    torch.manual_seed(0)
    attention = SelfAttention(8, 2, 2, 5, use_cls_token=True)
    x = torch.randn(3, 4, 8)
    out = attention(x)
    assert out.shape == (3, 5)
    torch.testing.assert_close(attention(x[:, [3, 1, 0, 2]]), out)
    real = torch.tensor([[True] * 4, [True] * 4, [True, True, False, False]])
    other = x.clone()
    other[2, 2:] = torch.randn(2, 8)
    torch.testing.assert_close(attention(other, real), attention(x, real))
    assert SelfAttention(8, 1, 2, 5, use_cls_token=False)(x).shape == (3, 4, 5)
