"""Linear layers through oneDNN are nn.Linear up to rounding, forward and backward."""

import pytest
import torch
from torch.nn import functional as F

from holdfast.policies.parts import linear as module
from holdfast.policies.parts.linear import Linear, linear, onednn_is_faster

CPU = "vendor_id\t: {vendor}\ncpu family\t: {family}\nflags\t\t: fpu avx2 {flags}\n"


@pytest.mark.parametrize(
    ("vendor", "family", "flags", "faster"),
    [
        ("AuthenticAMD", 26, "avx512f", True),
        ("AuthenticAMD", 25, "avx512f", False),
        ("AuthenticAMD", 26, "", False),
        ("GenuineIntel", 26, "avx512f", False),
    ],
)
def test_the_processor_decides(vendor, family, flags, faster):
    assert onednn_is_faster(CPU.format(vendor=vendor, family=family, flags=flags)) is faster
    assert not onednn_is_faster("")


@pytest.fixture
def onednn(monkeypatch):
    monkeypatch.setattr(module, "USE_ONEDNN", True)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3,), (5, 7)], ids=["rows", "time and slots"])
def test_outputs_and_gradients_equal_those_of_torch(onednn, shape, bias, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    calls = []
    original = module.OneDNNLinear.apply
    monkeypatch.setattr(module.OneDNNLinear, "apply", lambda *a: calls.append(1) or original(*a))
    x = torch.randn(*shape, 128, generator=generator, requires_grad=True)
    layer = Linear(128, 160, bias=bias)
    grad = torch.randn(*shape, 160, generator=generator)
    inputs = [x, *layer.parameters()]
    ours, theirs = layer(x), F.linear(x, layer.weight, layer.bias)
    assert len(calls) == 1
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    for mine, reference in zip(
        torch.autograd.grad(ours, inputs, grad), torch.autograd.grad(theirs, inputs, grad), strict=True
    ):
        torch.testing.assert_close(mine, reference, rtol=1e-5, atol=1e-5)


def test_expanded_gradients_and_transposed_inputs_are_handled(onednn):
    x = torch.randn(128, 9, requires_grad=True)
    weight = torch.randn(200, 128, requires_grad=True)
    ours, theirs = (f(x.t(), weight, None).sum() for f in (linear, F.linear))
    for mine, reference in zip(
        torch.autograd.grad(ours, [x, weight]), torch.autograd.grad(theirs, [x, weight]), strict=True
    ):
        torch.testing.assert_close(mine, reference, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("x", [torch.randn(3, 64), torch.randn(3, 128, dtype=torch.float64)], ids=["small", "double"])
def test_small_layers_and_other_dtypes_stay_with_torch(onednn, x, monkeypatch):
    monkeypatch.setattr(module.OneDNNLinear, "apply", lambda *a: pytest.fail("oneDNN was called"))
    weight = torch.randn(x.shape[1], x.shape[1], dtype=x.dtype)
    assert torch.equal(linear(x, weight, None), F.linear(x, weight))
