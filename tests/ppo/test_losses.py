"""Losses compared with hand-computed numbers; invalid steps affect neither losses nor gradients."""

import math

import pytest
import torch

from holdfast.ppo import explained_variance, normalize_advantages, ppo_losses


def row(*numbers: float, grad: bool = False) -> torch.Tensor:
    """[T=1, M]"""
    return torch.tensor([numbers], dtype=torch.float64, requires_grad=grad)


def gradient(x: torch.Tensor) -> torch.Tensor:
    assert x.grad is not None
    return x.grad


def losses(ratio=(1.0,), advantages=(1.0,), **changes):
    """Losses of a one-row minibatch with these probability ratios; other inputs are 0 unless changed."""
    n = len(ratio)
    inputs = {
        "new_log_prob": row(*(math.log(r) for r in ratio)),
        "old_log_prob": row(*[0.0] * n),
        "advantages": row(*advantages),
        "new_values": row(*[0.0] * n),
        "old_values": row(*[0.0] * n),
        "returns": row(*[0.0] * n),
        "entropy": row(*[0.0] * n),
        "valid": torch.ones(1, n, dtype=torch.bool),
        "weights": None,
        "clip": 0.25,
        "value_clip": 0.0,
    }
    return ppo_losses(**{**inputs, **changes})


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (1.5, 2.0, -2.5),  # good action, already more likely: clipped at 1.25
        (0.5, 2.0, -1.0),  # good action that became less likely: not clipped
        (1.5, -2.0, 3.0),  # bad action that became more likely: not clipped
        (0.5, -2.0, 1.5),  # bad action, already less likely: clipped at 0.75
    ],
)
def test_the_policy_loss_is_clipped_when_the_action_already_moved_the_right_way(ratio, advantage, loss):
    got = losses((ratio,), (advantage,))
    assert got.policy_loss.item() == pytest.approx(loss)
    assert got.clip_fraction.item() == 1.0
    assert got.log_ratio.exp().item() == pytest.approx(ratio)


def test_the_policy_gradient_is_minus_advantage_times_ratio_and_zero_where_clipped():
    new = row(math.log(1.1), math.log(1.5), grad=True)
    losses((1, 1), (2.0, 2.0), new_log_prob=new).policy_loss.backward()
    assert gradient(new).flatten().tolist() == pytest.approx([-2.0 * 1.1 / 2, 0.0])


def test_kl_is_the_k3_estimate():
    got = losses((2.0, 0.5), (0.0, 0.0))
    k3 = ((2.0 - 1 - math.log(2)) + (0.5 - 1 + math.log(2))) / 2
    assert got.approx_kl.item() == pytest.approx(k3)


def test_the_value_loss_is_the_larger_of_unclipped_and_clipped():
    # old 0, returns 1. new 0.8 is clipped to 0.5: (1 - 0.5)^2 > (1 - 0.8)^2. new -2: (1 + 2)^2 stays.
    values = {"new_values": row(0.8, -2.0), "returns": row(1.0, 1.0)}
    assert losses((1, 1), (0, 0), value_clip=0.5, **values).value_loss.item() == pytest.approx(0.5 * (0.25 + 9) / 2)
    assert losses((1, 1), (0, 0), value_clip=0.0, **values).value_loss.item() == pytest.approx(0.5 * (0.04 + 9) / 2)


def test_the_value_gradient_pulls_towards_returns():
    new = row(0.3, grad=True)
    losses(new_values=new, returns=row(1.0)).value_loss.backward()
    assert gradient(new).item() == pytest.approx(0.3 - 1.0)


def test_entropy_is_a_mean_with_gradient():
    entropy = row(1.0, 3.0, grad=True)
    got = losses((1, 1), (0, 0), entropy=entropy).entropy
    got.backward()
    assert got.item() == 2.0
    assert gradient(entropy).flatten().tolist() == [0.5, 0.5]


@pytest.mark.parametrize("bad", [1e6, torch.inf, torch.nan])
def test_invalid_steps_change_no_metric_and_no_gradient(bad):
    alone = {"new_values": row(0.3), "returns": row(1.0), "entropy": row(0.7), "value_clip": 0.5}
    expected = losses((1.1,), (2.0,), **alone)
    names = ("new_log_prob", "new_values", "entropy")
    steps = {
        "new_log_prob": row(math.log(1.1), bad, grad=True),
        "old_log_prob": row(0.0, 0.0),
        "advantages": row(2.0, bad),
        "new_values": row(0.3, bad, grad=True),
        "old_values": row(0.0, bad),
        "returns": row(1.0, bad),
        "entropy": row(0.7, bad, grad=True),
        "valid": torch.tensor([[True, False]]),
    }
    got = ppo_losses(**steps, weights=None, clip=0.25, value_clip=0.5)
    for name in ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"):
        assert getattr(got, name).item() == pytest.approx(getattr(expected, name).item()), name
    assert got.log_ratio[0, 1].item() == 0.0
    (got.policy_loss + got.value_loss + got.entropy).backward()
    for name in names:
        assert gradient(steps[name])[0, 1].item() == 0.0, name
        assert gradient(steps[name])[0, 0].item() != 0.0, name


def test_an_invalid_return_reaches_no_gradient_through_the_clipped_value():
    new = row(0.3, 0.0, grad=True)
    valid = torch.tensor([[True, False]])
    losses(
        (1, 1), (0, 0), new_values=new, returns=row(1.0, torch.nan), valid=valid, value_clip=0.5
    ).value_loss.backward()
    assert gradient(new).flatten().tolist() == pytest.approx([0.3 - 1.0, 0.0])


def test_a_minibatch_of_only_junk_is_zero():
    new = row(0.5, grad=True)
    got = losses(new_log_prob=new, valid=torch.tensor([[False]]), new_values=row(3.0), entropy=row(2.0))
    got.policy_loss.backward()
    assert (got.policy_loss.item(), got.value_loss.item(), got.entropy.item()) == (0.0, 0.0, 0.0)
    assert gradient(new).item() == 0.0


def test_weights_scale_segments_in_losses_but_not_in_figures():
    steps = {"new_values": row(1.0, 1.0), "entropy": row(1.0, 1.0)}
    weighted = losses((1.1, 1.1), (1.0, 1.0), weights=torch.tensor([1.0, 0.5]), **steps)
    plain = losses((1.1, 1.1), (1.0, 1.0), **steps)
    for name in ("policy_loss", "value_loss", "entropy"):
        assert getattr(weighted, name).item() == pytest.approx(0.75 * getattr(plain, name).item()), name
    assert weighted.approx_kl.item() == plain.approx_kl.item()


def test_weights_follow_segments_not_time():
    entropy = torch.tensor([[1.0, 10.0], [2.0, 20.0]])  # T = M = 2: a transposed weight would still broadcast
    same = {name: torch.zeros(2, 2) for name in ("new_log_prob", "old_log_prob", "new_values", "old_values", "returns")}
    valid = torch.ones(2, 2, dtype=torch.bool)
    got = ppo_losses(
        **same,
        advantages=torch.zeros(2, 2),
        entropy=entropy,
        valid=valid,
        weights=torch.tensor([1.0, 0.0]),
        clip=0.2,
        value_clip=0.0,
    )
    assert got.entropy.item() == 3.0 / 4


def test_metrics_have_no_graph():
    got = losses(new_log_prob=row(0.1, grad=True), new_values=row(0.1, grad=True), entropy=row(1.0, grad=True))
    assert all(x.requires_grad for x in (got.policy_loss, got.value_loss, got.entropy))
    assert not any(x.requires_grad for x in (got.approx_kl, got.clip_fraction, got.log_ratio))


def test_advantages_are_normalised_over_valid_steps():
    valid = torch.tensor([[True, True, False]])
    got = normalize_advantages(row(1.0, 3.0, 1000.0), valid)
    assert got.flatten().tolist() == pytest.approx([-1.0, 1.0, 0.0])


@pytest.mark.parametrize("value", [0.1, -123.456, 1e-4])
def test_equal_advantages_are_zero_not_rounding_noise(value):
    advantages = torch.full((64, 33), value, dtype=torch.float32)
    normalised = normalize_advantages(advantages, torch.ones(64, 33, dtype=torch.bool))
    assert normalised.abs().max() < 1e-3


def test_one_valid_step_or_none_normalises_to_zero():
    assert normalize_advantages(row(5.0), torch.tensor([[True]])).item() == 0.0
    assert normalize_advantages(row(torch.nan), torch.tensor([[False]])).item() == 0.0


def test_explained_variance():
    returns, valid = row(0.0, 2.0, 4.0, 99.0), torch.tensor([[True, True, True, False]])
    assert explained_variance(row(1.0, 3.0, 5.0, 0.0), returns, valid).item() == 1.0
    assert explained_variance(row(7.0, 7.0, 7.0, 0.0), returns, valid).item() == 0.0
    assert explained_variance(row(4.0, 2.0, 0.0, 0.0), returns, valid).item() == -3.0  # 1 - (32/3) / (8/3)
    assert explained_variance(row(0.5, 1.0), row(1.0, 1.0), torch.tensor([[True, True]])).item() == 0.0
