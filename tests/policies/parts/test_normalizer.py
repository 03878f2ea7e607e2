"""The running normaliser: correct statistics, updated only by `update`."""

import torch

from holdfast.policies.parts.layers import RunningNorm


def test_statistics_of_parts_equal_statistics_of_the_whole():
    x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0)) * 5 + 2
    norm = RunningNorm(3)
    for part in x.split([10, 490, 500]):
        norm.update(part)
    torch.testing.assert_close(norm.mean, x.mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(norm.var, x.var(0, unbiased=False), rtol=1e-5, atol=1e-5)
    assert float(norm.count) == 1000


def test_forward_does_not_update_statistics():
    norm = RunningNorm(2)
    norm.update(torch.tensor([[0.0, 0.0], [2.0, 4.0]]))
    before = {k: v.clone() for k, v in norm.state_dict().items()}
    out = norm(torch.tensor([[2.0, 4.0]]))
    torch.testing.assert_close(out, torch.tensor([[1.0, 1.0]]))
    assert all(torch.equal(v, before[k]) for k, v in norm.state_dict().items())


def test_without_statistics_values_pass_and_outliers_are_clipped():
    norm = RunningNorm(1)
    torch.testing.assert_close(norm(torch.tensor([[0.5]])), torch.tensor([[0.5]]))
    assert float(norm(torch.tensor([[1e9]]))) == 10.0
