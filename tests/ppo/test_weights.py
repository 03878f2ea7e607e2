import pytest
import torch
from torch import nn

from holdfast.ppo import clip_weights_, l2_to_init_loss, weight_limits


def test_l2_to_init_is_the_squared_distance_and_its_gradient_pulls_back():
    layer = nn.Linear(1, 2)
    init = {name: p.detach().clone() for name, p in layer.named_parameters()}
    with torch.no_grad():
        layer.weight.add_(torch.tensor([[3.0], [0.0]]))
        layer.bias.add_(torch.tensor([0.0, -1.0]))
    loss = l2_to_init_loss(dict(layer.named_parameters()), init)
    loss.backward()
    assert loss.item() == pytest.approx(10.0)
    torch.testing.assert_close(layer.weight.grad, torch.tensor([[6.0], [0.0]]))
    torch.testing.assert_close(layer.bias.grad, torch.tensor([0.0, -2.0]))


def test_l2_to_init_scales_by_name():
    params, init = {"a": torch.ones(2), "b": torch.ones(1)}, {"a": torch.zeros(2), "b": torch.zeros(1)}
    assert l2_to_init_loss(params, init, {"a": 0.25}).item() == 0.25 * 2 + 1


def test_l2_to_init_refuses_weights_without_initial_values():
    with pytest.raises(ValueError, match=r"\['b'\]"):
        l2_to_init_loss({"a": torch.ones(1), "b": torch.ones(1)}, {"a": torch.ones(1)})


def test_limits_are_multiples_of_the_largest_initial_weight_of_the_layer():
    init = {
        "encoder.0.weight": torch.tensor([0.5, -2.0]),
        "encoder.0.bias": torch.zeros(2),
        "encoder.1.weight": torch.tensor([0.25]),
        "scale": torch.zeros(1),
    }
    limits = weight_limits(init, weight_clip=2.0, scales={"encoder.1.weight": 3.0})
    assert limits == {"encoder.0.weight": 4.0, "encoder.0.bias": 4.0, "encoder.1.weight": 1.5}


def test_clipping_works_in_place():
    layer = nn.Linear(3, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[5.0, -0.5, -7.0]]))
        layer.bias.fill_(-9.0)
    clip_weights_(dict(layer.named_parameters()), {"weight": 1.0})
    assert layer.weight.tolist() == [[1.0, -0.5, -1.0]]
    assert layer.bias.item() == -9.0
    assert layer.weight.requires_grad
    assert layer.weight.is_leaf
