"""Action distributions against torch.distributions, and against frequencies."""

import math

import pytest
import torch
from torch import distributions as d

from holdfast.policies.actions import Sampling, distribution_for, only_legal, usual_entropy_coef
from holdfast.spec import BoxActions, DiscreteActions, MixedActions, MultiDiscreteActions

PARAMS = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


def test_categorical():
    ours, theirs = distribution_for(DiscreteActions(("a", "b", "c", "d"))), d.Categorical(logits=PARAMS)
    actions = torch.tensor([0, 1, 2, 3, 1])
    torch.testing.assert_close(ours.score(PARAMS, actions)[0], theirs.log_prob(actions))
    torch.testing.assert_close(ours.score(PARAMS, actions)[1], theirs.entropy())
    torch.testing.assert_close(ours.full_log_probs(PARAMS), theirs.logits)


def test_multi_categorical():
    ours = distribution_for(MultiDiscreteActions((1, 3)))
    parts = [d.Categorical(logits=PARAMS[:, :1]), d.Categorical(logits=PARAMS[:, 1:])]
    actions = torch.tensor([[0, 0], [0, 1], [0, 2], [0, 0], [0, 1]])
    torch.testing.assert_close(
        ours.score(PARAMS, actions)[0], sum(p.log_prob(actions[:, i]) for i, p in enumerate(parts))
    )
    torch.testing.assert_close(ours.score(PARAMS, actions)[1], sum(p.entropy() for p in parts))


def test_gaussian():
    ours = distribution_for(BoxActions((-1.0, -1.0), (1.0, 1.0)))
    theirs = d.Independent(d.Normal(PARAMS[:, :2], PARAMS[:, 2:].exp()), 1)
    actions = torch.randn(5, 2)
    torch.testing.assert_close(ours.score(PARAMS, actions)[0], theirs.log_prob(actions))
    torch.testing.assert_close(ours.score(PARAMS, actions)[1], theirs.entropy())


def test_mixed_is_the_product_of_its_parts():
    """Logits of choices of 2 and 3 options, then mean and log-std of one real number."""
    params = torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    ours = distribution_for(MixedActions((2, 3), (-1.0,), (1.0,)))
    choices = [d.Categorical(logits=params[:, :2]), d.Categorical(logits=params[:, 2:5])]
    parts = [*choices, d.Normal(params[:, 5], params[:, 6].exp())]
    actions = torch.tensor([[0, 0, 0.5], [1, 1, -2], [0, 2, 0], [1, 0, 9], [0, 1, 0.1]])
    log_prob, entropy = ours.score(params, actions)
    torch.testing.assert_close(log_prob, sum(p.log_prob(actions[:, i]) for i, p in enumerate(parts)))
    torch.testing.assert_close(entropy, sum(p.entropy() for p in parts))
    assert ours.num_params == ours.full_log_probs(params).shape[-1] == 7


def test_a_mask_covers_only_the_choices_of_mixed_actions():
    ours = distribution_for(MixedActions((2, 3), (-1.0,), (1.0,), masked=True))
    params = only_legal(torch.zeros(1000, 7), torch.tensor([True, False, False, True, True]))
    drawn, _ = ours.draw(params, Sampling(generator=torch.Generator().manual_seed(1)))
    assert drawn[:, 0].unique().tolist() == [0]
    assert drawn[:, 1].unique().tolist() == [1, 2]
    assert float(drawn[:, 2].std()) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    "actions",
    [
        MixedActions((2,), (-1.0,), (1.0,)),
        DiscreteActions(("a", "b", "c", "d")),
        MultiDiscreteActions((2, 2)),
        BoxActions((-1.0, -1.0), (1.0, 1.0)),
    ],
)
def test_samples_follow_the_distribution(actions):
    ours = distribution_for(actions)
    params = PARAMS[:1].expand(20_000, -1)
    how = Sampling(generator=torch.Generator().manual_seed(1))
    drawn, log_prob = ours.draw(params, how)
    scored, entropy = ours.score(params, drawn)
    assert torch.equal(log_prob, scored)
    # The mean of -log p over samples is the entropy.
    assert float(-log_prob.mean()) == pytest.approx(float(entropy[0]), rel=0.03)
    if isinstance(actions, DiscreteActions):
        shares = torch.bincount(drawn, minlength=4) / len(drawn)
        torch.testing.assert_close(shares, PARAMS[0].softmax(-1), rtol=0.1, atol=0.01)


def test_greedy_takes_the_mode_and_draws_nothing():
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    how = Sampling(greedy=True, generator=generator)
    assert torch.equal(distribution_for(DiscreteActions(("a", "b", "c", "d"))).draw(PARAMS, how)[0], PARAMS.argmax(-1))
    assert torch.equal(distribution_for(BoxActions((0.0, 0.0), (1.0, 1.0))).draw(PARAMS, how)[0], PARAMS[:, :2])
    assert torch.equal(generator.get_state(), before)


def test_more_actions_get_a_larger_entropy_bonus():
    two, seven = (usual_entropy_coef(DiscreteActions(tuple(map(str, range(n))))) for n in (2, 7))
    assert two == pytest.approx(0.015 * math.log(2))
    assert seven == pytest.approx(0.015 * math.log(7))
    assert usual_entropy_coef(MultiDiscreteActions((2, 7, 1))) == pytest.approx((two + seven) / 2)
    assert usual_entropy_coef(BoxActions((-1.0,), (1.0,))) == 0.01
