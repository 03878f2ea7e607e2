"""Advantages compared with hand-computed numbers and with the definition written as a loop."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.ppo import discounted_returns, gae, vtrace

GAMMA, LAM = 0.5, 0.5


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32).unsqueeze(1)


def flags(*rows: int, size: int) -> torch.Tensor:
    x = torch.zeros(size, 1, dtype=torch.bool)
    x[list(rows)] = True
    return x


def three_steps(
    done: tuple[int, ...] = (), truncated: tuple[int, ...] = (), junk: tuple[int, ...] = ()
) -> dict[str, torch.Tensor]:
    """Actions 0, 1, 2 of one slot. Rewards 1, 2, 4 arrive at rows 1, 2, 3; the 100 of row 0 belongs to an earlier action."""
    return {
        "rewards": column(100, 1, 2, 4),
        "values": column(8, 4, 2, 16),
        "dones": flags(*done, size=4),
        "truncateds": flags(*truncated, size=4),
        "final_values": torch.full((3, 1), torch.nan),
        "valid": ~flags(*junk, size=3),
    }


def test_an_unbroken_rollout_bootstraps_from_its_last_observation():
    # errors: 1 + 4/2 - 8 = -5;  2 + 2/2 - 4 = -1;  4 + 16/2 - 2 = 10. sums: 10; -1 + 10/4; -5 + 1.5/4
    advantages, returns = gae(**three_steps(), gamma=GAMMA, lam=LAM)
    assert advantages.flatten().tolist() == [-4.625, 1.5, 10.0]
    assert returns.flatten().tolist() == [3.375, 5.5, 12.0]


def test_termination_does_not_bootstrap_and_stops_the_sum():
    # the world ended on arriving at row 2: error of action 1 is 2 - 4
    advantages, returns = gae(**three_steps(done=(2,)), gamma=GAMMA, lam=LAM)
    assert advantages.flatten().tolist() == [-5.0 - 0.5, -2.0, 10.0]
    assert returns.flatten().tolist() == [2.5, 2.0, 12.0]


def test_truncation_bootstraps_from_the_final_observation_and_stops_the_sum():
    rollout = three_steps(truncated=(2,))
    rollout["final_values"][1] = 6.0  # error of action 1: 2 + 6/2 - 4 = 1; V of row 2 is the next episode's
    advantages, returns = gae(**rollout, gamma=GAMMA, lam=LAM)
    assert advantages.flatten().tolist() == [-5.0 + 0.25, 1.0, 10.0]
    assert returns.flatten().tolist() == [3.25, 5.0, 12.0]


def test_terminated_and_truncated_at_once_is_terminated():
    rollout = three_steps(done=(2,), truncated=(2,))
    rollout["final_values"][1] = 6.0
    both = gae(**rollout, gamma=GAMMA, lam=LAM)
    terminated = gae(**three_steps(done=(2,)), gamma=GAMMA, lam=LAM)
    assert torch.equal(both[0], terminated[0])


def test_an_episode_may_end_at_the_last_row():
    terminated, _ = gae(**three_steps(done=(3,)), gamma=GAMMA, lam=LAM)
    assert terminated[2].item() == 4.0 - 2.0
    rollout = three_steps(truncated=(3,))
    rollout["final_values"][2] = 20.0
    truncated, _ = gae(**rollout, gamma=GAMMA, lam=LAM)
    assert truncated[2].item() == 4.0 + 10.0 - 2.0


def test_an_end_at_row_0_belongs_to_the_previous_rollout():
    ended_before, _ = gae(**three_steps(done=(0,), truncated=(0,)), gamma=GAMMA, lam=LAM)
    assert torch.equal(ended_before, gae(**three_steps(), gamma=GAMMA, lam=LAM)[0])


def test_an_invalid_step_has_no_advantage_and_stops_the_sum():
    # action 0 still bootstraps from V of row 1, but gets nothing from the steps after the invalid one
    advantages, returns = gae(**three_steps(junk=(1,)), gamma=GAMMA, lam=LAM)
    assert advantages.flatten().tolist() == [-5.0, 0.0, 10.0]
    assert returns.flatten().tolist() == [3.0, 4.0, 12.0]


def test_invalid_steps_may_contain_nan():
    rollout = three_steps(junk=(1,), truncated=(2,))
    rollout["rewards"][2] = torch.nan
    assert torch.isfinite(gae(**rollout, gamma=GAMMA, lam=LAM)[0]).all()
    assert torch.isfinite(
        vtrace(**rollout, ratio=column(1, torch.nan, 1), gamma=GAMMA, lam=LAM, rho_clip=1, c_clip=1)[0]
    ).all()


def test_a_missing_final_value_shows_as_nan():
    advantages, _ = gae(**three_steps(truncated=(2,)), gamma=GAMMA, lam=LAM)
    assert advantages[1].isnan().all()


def test_vtrace_by_hand():
    # ratios 2, 0.5, 1 clipped at rho 1.5 and c 0.75: errors -5 x 1.5, -1 x 0.5, 10 x 1; decays 3/16, 1/8
    advantages, returns = vtrace(
        **three_steps(), ratio=column(2, 0.5, 1), gamma=GAMMA, lam=LAM, rho_clip=1.5, c_clip=0.75
    )
    assert advantages.flatten().tolist() == [-7.5 + 3 / 16 * 0.75, -0.5 + 1.25, 10.0]
    assert returns.flatten().tolist() == [8 - 7.359375, 4.75, 12.0]


@pytest.mark.parametrize("estimate", [gae, vtrace])
def test_inputs_are_unchanged_and_results_have_no_graph(estimate):
    rollout = three_steps(truncated=(2,))
    rollout["final_values"][1] = 6.0
    before = {name: x.clone() for name, x in rollout.items()}
    rollout["values"].requires_grad_(True)
    extra = {"ratio": column(2, 1, 1), "rho_clip": 1.0, "c_clip": 1.0} if estimate is vtrace else {}
    advantages, returns = estimate(**rollout, **extra, gamma=GAMMA, lam=LAM)
    assert not advantages.requires_grad
    assert not returns.requires_grad
    for name, x in rollout.items():
        assert torch.equal(x.nan_to_num(), before[name].nan_to_num()), name


@st.composite
def rollouts(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    R, S = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    often = draw(st.sampled_from([0.0, 0.2, 0.6]))

    def chance(rows: int) -> torch.Tensor:
        return torch.rand(rows, S, generator=generator) < often

    return {
        "rewards": torch.randn(R + 1, S, generator=generator, dtype=torch.float64),
        "values": torch.randn(R + 1, S, generator=generator, dtype=torch.float64),
        "dones": chance(R + 1),
        "truncateds": chance(R + 1),
        "final_values": torch.randn(R, S, generator=generator, dtype=torch.float64),
        "valid": ~chance(R),
    }


@settings(deadline=None, max_examples=60)
@given(rollouts(), st.floats(0, 1), st.floats(0, 1))
def test_gae_equals_its_definition(rollout, gamma, lam):
    advantages, returns = gae(**rollout, gamma=gamma, lam=lam)
    R, S = advantages.shape
    for s in range(S):
        later = 0.0
        for t in reversed(range(R)):
            done, truncated = bool(rollout["dones"][t + 1, s]), bool(rollout["truncateds"][t + 1, s])
            next_value = float(rollout["values"][t + 1, s])
            if truncated:
                next_value = float(rollout["final_values"][t, s])
            if done:
                next_value = 0.0
            if done or truncated:
                later = 0.0
            if rollout["valid"][t, s]:
                error = float(rollout["rewards"][t + 1, s]) + gamma * next_value - float(rollout["values"][t, s])
                later = error + gamma * lam * later
            else:
                later = 0.0
            assert advantages[t, s].item() == pytest.approx(later, abs=1e-12)
            assert returns[t, s].item() == pytest.approx(later + float(rollout["values"][t, s]), abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(rollouts(), st.floats(0, 1), st.floats(0, 1))
def test_vtrace_of_an_unchanged_policy_is_gae(rollout, gamma, lam):
    ones = torch.ones_like(rollout["final_values"])
    expected = gae(**rollout, gamma=gamma, lam=lam)
    got = vtrace(**rollout, ratio=ones, gamma=gamma, lam=lam, rho_clip=1.0, c_clip=1.0)
    torch.testing.assert_close(got[0], expected[0])
    torch.testing.assert_close(got[1], expected[1])


@settings(deadline=None, max_examples=40)
@given(rollouts(), st.data())
def test_slots_do_not_mix(rollout, data):
    advantages, _ = gae(**rollout, gamma=0.9, lam=0.9)
    s = data.draw(st.integers(0, advantages.shape[1] - 1))
    alone, _ = gae(**{name: x[:, s : s + 1] for name, x in rollout.items()}, gamma=0.9, lam=0.9)
    assert torch.equal(alone[:, 0], advantages[:, s])


def test_discounted_returns_by_hand():
    rewards = torch.tensor([[9.0, 9.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])  # row 0 belongs to the previous rollout
    dones = torch.tensor([[True, True], [False, False], [True, False], [False, False]])
    truncateds = torch.tensor([[False, False], [False, True], [False, False], [False, False]])
    valid = torch.tensor([[True, True], [True, True], [True, False]])
    returns = discounted_returns(rewards, dones, truncateds, valid, 0.5)
    # slot 0: 1 + 1/2, then the episode ends with 1, then 1; slot 1: cut after 2, then 2 + 0 / 2, then an invalid step
    assert returns.tolist() == [[1.5, 2.0], [1.0, 2.0], [1.0, 0.0]]
