"""Encoders for codes and grids."""

import pytest
import torch

from holdfast.policies.parts.arrays import EMBEDDING, CodeEncoder, GridEncoder, ImageEncoder, is_grid, is_image


def test_codes_become_one_hot_vectors_side_by_side():
    encoder = CodeEncoder((2, 3))
    assert encoder(torch.tensor([[1, 0], [0, 2]], dtype=torch.uint8)).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    assert encoder(torch.tensor([[1.0, 2.0]])).tolist() == [[0, 1, 0, 0, 1]]
    assert not list(encoder.parameters())
    assert not encoder.state_dict()


@pytest.mark.parametrize(
    ("sizes", "size"),
    [((500,), 500), ((1024,), 1024), ((1025,), EMBEDDING), ((64,) * 20, 1280), ((65,) * 20, 20 * EMBEDDING)],
)
def test_long_one_hot_vectors_become_embeddings(sizes: tuple[int, ...], size: int):
    torch.manual_seed(0)
    encoder = CodeEncoder(sizes)
    assert encoder.size == size
    last = torch.tensor([[n - 1 for n in sizes], [0] * len(sizes)])
    first, second = encoder(last)
    assert first.shape == (size,)
    assert not torch.equal(first, second)


def test_equal_codes_of_two_values_have_their_own_embeddings():
    torch.manual_seed(0)
    one, two = CodeEncoder((2000, 2000))(torch.tensor([[7, 7]])).view(2, EMBEDDING)
    assert not torch.equal(one, two)


@pytest.mark.parametrize(
    ("shape", "kind", "channels", "last"),
    [
        ((7, 7, 3), GridEncoder, 3, True),
        ((3, 7, 7), GridEncoder, 3, False),
        ((8, 8, 111), GridEncoder, 111, True),
        ((17, 5, 5), GridEncoder, 17, False),
        ((6, 7, 2), GridEncoder, 2, True),
        ((3, 5, 9), GridEncoder, 3, False),
        ((3, 3, 3), GridEncoder, 3, True),
        ((9, 12, 3), GridEncoder, 3, True),
        ((2, 2, 3), None, 0, False),
        ((4, 40, 3), None, 0, False),
        ((10, 10, 3), ImageEncoder, 3, True),
        ((7, 7), None, 0, False),
    ],
)
def test_shapes(shape: tuple[int, ...], kind: type | None, channels: int, last: bool):
    assert (is_image(shape), is_grid(shape)) == (kind is ImageEncoder, kind is GridEncoder)
    if kind is GridEncoder:
        encoder = GridEncoder(shape, normalize=True)
        x = torch.rand(2, *shape)
        assert encoder(x).shape == (2, encoder.size)
        assert encoder.channels_last == last
        assert encoder.norm is not None
        encoder.absorb(x)
        assert encoder.norm.mean.tolist() == pytest.approx(x.mean((0, 1, 2) if last else (0, 2, 3)).tolist())
        assert len(encoder.norm.mean) == channels


def test_bytes_of_a_grid_are_embedded_per_channel():
    torch.manual_seed(0)
    encoder = GridEncoder((5, 5, 2), normalize=False, is_bytes=True)
    assert encoder.table is not None
    x = torch.randint(0, 256, (4, 5, 5, 2), dtype=torch.uint8)
    embedded = encoder.table[x[..., 0].long()] + encoder.table[256 + x[..., 1].long()]
    expected = encoder.stack(torch.cat([x.float(), embedded], -1).permute(0, 3, 1, 2)).flatten(1)
    torch.testing.assert_close(encoder(x), expected)
    assert GridEncoder((5, 5, 5), normalize=True, is_bytes=True).table is None


@pytest.mark.parametrize("is_bytes", [False, True])
def test_a_grid_encoder_sees_every_cell_and_tells_small_codes_apart(is_bytes: bool):
    torch.manual_seed(0)
    encoder = GridEncoder((7, 7, 3), normalize=True, is_bytes=is_bytes)
    encoder.absorb(torch.randint(0, 10, (100, 7, 7, 3), dtype=torch.uint8))
    grids = torch.full((50, 7, 7, 3), 1, dtype=torch.uint8)
    for i in range(49):
        grids[i, i // 7, i % 7, 0] = 5
    with torch.no_grad():
        apart = torch.cdist(*[encoder(grids)] * 2) + torch.eye(50)
    assert float(apart.min()) > 0.01
