"""Adam steps exactly as torch.optim.Adam does, for every parameter that has a gradient."""

import torch

from holdfast.trainer.adam import Adam


def test_weights_and_state_equal_those_of_torch_bit_for_bit():
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in ((5, 3), (7,), (2,))]
    torchs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
    adam, reference = Adam(ours, lr=1e-2, eps=1e-5), torch.optim.Adam(torchs, lr=1e-2, eps=1e-5, fused=True)
    for step in range(12):
        for optimizer in (adam, reference):
            optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)
        for i, (a, b) in enumerate(zip(ours, torchs, strict=True)):
            has_gradient = not (i == 1 and step == 6) and not (i == 2 and step < 4)
            a.grad = torch.randn_like(a) if has_gradient else None
            b.grad = None if a.grad is None else a.grad.clone()
        adam.step()
        reference.step()
    for a, b in zip(ours, torchs, strict=True):
        assert torch.equal(a, b)
        assert adam.state[a].keys() == reference.state[b].keys()
        assert all(torch.equal(adam.state[a][name], reference.state[b][name]) for name in adam.state[a])
    assert [int(adam.state[a]["step"]) for a in ours] == [12, 11, 8]
    assert adam.state_dict()["param_groups"] == reference.state_dict()["param_groups"]
