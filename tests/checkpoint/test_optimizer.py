import pytest
import torch
from torch import nn

from holdfast.checkpoint import (
    CheckpointError,
    flatten_optimizer,
    load_checkpoint,
    restore_optimizer,
    save_checkpoint,
)


def make(amsgrad: bool = False, named: bool = False) -> tuple[nn.ModuleDict, torch.optim.Adam]:
    """A model with a parameter that never gets a gradient, and an optimizer with two groups."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Linear(4, 8), "b": nn.Linear(8, 2), "unused": nn.Linear(2, 2)})
    body, rest = (
        [p for k in keys for p in (model[k].named_parameters(k) if named else model[k].parameters())]
        for keys in ("a", ("b", "unused"))
    )
    groups = [{"params": body}, {"params": rest, "lr": 3e-3, "betas": (0.8, 0.95)}]
    return model, torch.optim.Adam(groups, lr=1e-2, eps=1e-5, amsgrad=amsgrad)


def train(model: nn.ModuleDict, optimizer: torch.optim.Adam, steps: range) -> None:
    for step in steps:
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
        loss = model["b"](model["a"](x).tanh()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)  # a schedule: the last rate is part of the state
        optimizer.step()


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("steps", [0, 7])
def test_training_continues_bit_for_bit(tmp_path, amsgrad, named, steps):
    model, optimizer = make(amsgrad, named)
    train(model, optimizer, range(steps))
    tensors, facts = flatten_optimizer(optimizer)
    path = save_checkpoint(tmp_path, "a", {"policy": model.state_dict(), "optimizer": tensors}, {"optimizer": facts})
    train(model, optimizer, range(steps, 20))

    saved = load_checkpoint(path)
    resumed, resumed_optimizer = make(amsgrad, named)
    for group in resumed_optimizer.param_groups:
        group.update(lr=0.5, eps=0.1)
    train(resumed, resumed_optimizer, range(50, 53))  # so that every leftover would show
    resumed.load_state_dict(saved.tensors["policy"])
    restore_optimizer(resumed_optimizer, saved.tensors["optimizer"], saved.facts["optimizer"])
    assert resumed_optimizer.state_dict()["param_groups"] == facts["param_groups"] or steps == 0
    train(resumed, resumed_optimizer, range(steps, 20))

    for name, value in model.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    ours, theirs = flatten_optimizer(optimizer), flatten_optimizer(resumed_optimizer)
    assert ours[1] == theirs[1]
    assert ours[0].keys() == theirs[0].keys()
    for name, value in ours[0].items():
        assert torch.equal(value, theirs[0][name]), name


def test_training_does_not_write_into_the_checkpoint():
    model, optimizer = make()
    train(model, optimizer, range(3))
    tensors, facts = flatten_optimizer(optimizer)
    kept = {key: tensor.clone() for key, tensor in tensors.items()}
    other, other_optimizer = make()
    restore_optimizer(other_optimizer, kept, facts)
    train(other, other_optimizer, range(3, 6))
    assert all(torch.equal(kept[key], tensor) for key, tensor in tensors.items())


def break_group(facts, **changes):
    facts["param_groups"][0].update(changes)


MISFITS = {
    "another kind": (lambda t, f: f.update(kind="SGD"), "for 'SGD', not for Adam"),
    "no groups": (lambda t, f: f.pop("param_groups"), "no parameter groups in the checkpoint, but 2"),
    "one group": (lambda t, f: f["param_groups"].pop(), "1 parameter groups in the checkpoint, but 2"),
    "group is text": (lambda t, f: f.update(param_groups=["a", "b"]), "group 0 is a str"),
    "other parameters": (lambda t, f: break_group(f, params=[0]), "params differs"),
    "unknown setting": (lambda t, f: break_group(f, evil=1), "unknown setting 'evil'"),
    "rate is text": (lambda t, f: break_group(f, lr="1e-3"), "has lr='1e-3'"),
    "rate is a switch": (lambda t, f: break_group(f, lr=True), "has lr=True"),
    "three betas": (lambda t, f: break_group(f, betas=[0.1, 0.2, 0.3]), "has betas=(0.1, 0.2, 0.3)"),
    "switch is a number": (lambda t, f: break_group(f, foreach=3), "has foreach=3"),
    "missing tensor": (lambda t, f: t.pop("0.exp_avg_sq"), "'0.exp_avg_sq' is missing"),
    "missing step": (lambda t, f: t.pop("1.step"), "'1.step' is missing"),
    "extra tensor": (lambda t, f: t.update({"0.other": torch.ones(1)}), "unexpected tensor '0.other'"),
    "extra parameter": (lambda t, f: t.update({"99.step": torch.ones(())}), "unexpected tensor '99.step'"),
    "no number": (lambda t, f: t.update({"9" * 5000: torch.ones(())}), "unexpected tensor '999"),
    "other shape": (lambda t, f: t.update({"0.exp_avg": torch.ones(3)}), "'0.exp_avg' ([3] torch.float32)"),
    "other dtype": (lambda t, f: t.update({"1.exp_avg": torch.ones(8).double()}), "torch.float64"),
    "step is whole": (lambda t, f: t.update({"0.step": torch.tensor(3)}), "'0.step' ([] torch.int64)"),
}


@pytest.mark.parametrize(("damage", "reason"), MISFITS.values(), ids=MISFITS)
def test_what_does_not_fit_is_named_and_changes_nothing(damage, reason):
    model, optimizer = make()
    train(model, optimizer, range(3))
    tensors, facts = flatten_optimizer(optimizer)
    other, other_optimizer = make()
    train(other, other_optimizer, range(1))
    before = {key: tensor.clone() for key, tensor in flatten_optimizer(other_optimizer)[0].items()}
    damage(tensors, facts)
    with pytest.raises(CheckpointError) as error:
        restore_optimizer(other_optimizer, tensors, facts)
    assert reason in str(error.value)
    after = flatten_optimizer(other_optimizer)[0]
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_a_rate_kept_as_a_tensor_is_refused():
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight], lr=torch.tensor(1e-3), capturable=True, foreach=False)
    with pytest.raises(TypeError, match=r"param_groups\[0\].lr is a Tensor"):
        flatten_optimizer(optimizer)
