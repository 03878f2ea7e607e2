"""Layers compared with torch's own."""

import torch

from holdfast.policies.parts.heads import BilinearHead
from holdfast.policies.parts.layers import Conv2d, Tanh


def test_tanh_and_its_gradient():
    x = torch.linspace(-20, 20, 4001, requires_grad=True)
    upstream = torch.randn(4001)
    ours, theirs = Tanh.apply(x * 1.0), torch.tanh(x)  # it writes over its input
    torch.testing.assert_close(ours, theirs, rtol=0, atol=3e-7)
    grads = [torch.autograd.grad(y, x, upstream)[0] for y in (ours, theirs)]
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-5, atol=2e-6)


def test_bilinear_head_scores_each_action_by_its_embedding():
    head = BilinearHead(6, 4)
    h, embeddings = torch.randn(3, 6), torch.randn(5, 4)
    expected = [[torch.tanh(h[n] @ head.W) @ embeddings[a] + head.bias[0] for a in range(5)] for n in range(3)]
    torch.testing.assert_close(head(h, embeddings), torch.stack([torch.stack(row) for row in expected]))


def test_a_kernel_that_covers_the_input_gives_the_numbers_of_torch():
    ours = Conv2d(4, 6, kernel_size=3)
    theirs = torch.nn.Conv2d(4, 6, 3)
    theirs.load_state_dict(ours.state_dict())
    for side in (3, 5):
        x = torch.randn(2, 4, side, side)
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-6)
        assert ours(x).shape == (2, 6, side - 2, side - 2)
