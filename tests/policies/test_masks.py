"""Illegal choices: probability 0, gradient 0, never drawn; numbers worked out by hand."""

from math import inf, log

import pytest
import torch

from holdfast.policies.actions import Sampling, distribution_for, only_legal
from holdfast.spec import DiscreteActions, DiscreteObs, MultiDiscreteActions, WorldSpec, keys
from support.policies import make, random_arrivals, random_masks, random_state, score, step_td

FOUR = distribution_for(DiscreteActions(("a", "b", "c", "d"), masked=True))
PAIR = distribution_for(MultiDiscreteActions((2, 3), masked=True))
LOGITS = torch.tensor([0.0, 50.0, log(2.0), 99.0])
LEGAL = torch.tensor([True, False, True, False])  # what is left: weights 1 and 2
MASKED = ("box-masked", "new-lstm-policy-masked")


def test_two_of_four_by_hand():
    params = only_legal(LOGITS, LEGAL)
    assert FOUR.score(params, torch.tensor(0))[0].item() == pytest.approx(log(1 / 3))
    assert FOUR.score(params, torch.tensor(2))[0].item() == pytest.approx(log(2 / 3))
    assert FOUR.score(params, torch.tensor(0))[1].item() == pytest.approx(log(3) - 2 / 3 * log(2))
    full = FOUR.full_log_probs(params)
    assert full.exp().tolist() == pytest.approx([1 / 3, 0, 2 / 3, 0])
    assert full.isfinite().all()


def test_a_pair_by_hand():
    """First choice: weights 1, 3. Second: 2, (7), 2."""
    logits = torch.tensor([1.0, 3.0, 2.0, 7.0, 2.0]).log()
    params = only_legal(logits, torch.tensor([True, True, True, False, True]))
    assert PAIR.score(params, torch.tensor([1, 2]))[0].item() == pytest.approx(log(3 / 4 * 1 / 2))
    assert PAIR.score(params, torch.tensor([1, 2]))[1].item() == pytest.approx(log(4) - 3 / 4 * log(3) + log(2))
    assert PAIR.full_log_probs(params).exp().tolist() == pytest.approx([0.25, 0.75, 0.5, 0, 0.5])


def test_one_legal_choice_is_certain():
    params = only_legal(LOGITS, torch.tensor([True, False, False, False]))
    assert FOUR.score(params, torch.tensor(0))[0].item() == 0
    assert FOUR.score(params, torch.tensor(0))[1].item() == 0


def test_gradients_of_illegal_logits_are_exactly_zero():
    logits = LOGITS.clone().requires_grad_()
    params = only_legal(logits, LEGAL)
    (of_log_prob,) = torch.autograd.grad(FOUR.score(params, torch.tensor(0))[0], logits, retain_graph=True)
    assert of_log_prob.tolist() == pytest.approx([2 / 3, 0, -2 / 3, 0])
    (of_entropy,) = torch.autograd.grad(FOUR.score(params, torch.tensor(0))[1], logits)
    slope = 1 / 3 * 2 / 3 * log(2)  # of the entropy of (p, 1-p) in its first logit: p (1-p) log((1-p) / p)
    assert of_entropy.tolist() == pytest.approx([slope, 0, -slope, 0])
    assert (of_log_prob[~LEGAL] == 0).all()
    assert (of_entropy[~LEGAL] == 0).all()


@pytest.mark.parametrize("mask", [LEGAL, torch.zeros(4, dtype=torch.bool)], ids=["illegal action", "nothing legal"])
def test_scoring_what_cannot_happen_gives_numbers(mask: torch.Tensor):
    logits = LOGITS.clone().requires_grad_()
    params = only_legal(logits, mask)
    log_prob, entropy = FOUR.score(params, torch.tensor(1))
    (log_prob + entropy).backward()
    assert -inf < log_prob < 0
    assert entropy.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("distribution", [FOUR, PAIR], ids=["one choice", "two choices"])
def test_illegal_choices_are_never_drawn(distribution, greedy):
    """They have by far the largest logits; legal ones differ by so much that some have probability 0 themselves."""
    actions = (
        MultiDiscreteActions((2, 3), masked=True) if distribution is PAIR else DiscreteActions(tuple("abcd"), True)
    )
    generator = torch.Generator().manual_seed(0)
    mask = random_masks(WorldSpec("masks", DiscreteObs(1), actions, 1), (50_000,), generator)
    logits = torch.where(mask, 200 * torch.randn(mask.shape, generator=generator), 1e4)
    drawn = distribution.draw(only_legal(logits, mask), Sampling(greedy, generator))[0]
    assert was_legal(mask, drawn, actions.mask_sizes).all()
    assert not was_legal(mask, distribution.draw(logits, Sampling(greedy, generator))[0], actions.mask_sizes).all()


def test_shares_of_legal_choices_are_their_probabilities():
    params = only_legal(LOGITS, LEGAL).expand(30_000, -1)
    drawn = FOUR.draw(params, Sampling(generator=torch.Generator().manual_seed(0)))[0]
    assert (torch.bincount(drawn, minlength=4) / 30_000).tolist() == pytest.approx([1 / 3, 0, 2 / 3, 0], abs=0.01)


def test_a_generator_that_hands_out_zeros_draws_no_illegal_choice(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda self, generator=None: self.zero_())
    assert int(FOUR.draw(only_legal(LOGITS, LEGAL), Sampling())[0]) == 2


@pytest.mark.parametrize("name", MASKED)
def test_a_policy_is_its_unmasked_self_among_legal_choices(name):
    """Log-probs, entropy and full log-probs, each renormalised by hand from the call in which everything was legal."""
    policy = make(name)
    T, B = 6, 4
    arrivals = random_arrivals(policy.spec, T, B, seed=1)
    mask = arrivals[keys.ACTION_MASK]
    open_arrivals = {**arrivals, keys.ACTION_MASK: torch.ones_like(mask)}
    start = random_state(policy, B, 2)
    sizes = list(policy.spec.actions.mask_sizes)
    parts = mask.split(sizes, -1)
    actions = torch.stack([part.float().argmax(-1) for part in parts], -1)  # the first legal choice of each part
    given = actions if len(sizes) > 1 else actions.squeeze(-1)
    masked, unmasked = (score(policy, a, start, given) for a in (arrivals, open_arrivals))

    probs = unmasked[keys.FULL_LOG_PROBS].exp().where(mask, 0.0).split(sizes, -1)
    probs = [p / p.sum(-1, keepdim=True) for p in probs]
    torch.testing.assert_close(masked[keys.FULL_LOG_PROBS].exp(), torch.cat(probs, -1), rtol=1e-4, atol=1e-6)
    entropy = -sum(torch.special.xlogy(p, p).sum(-1) for p in probs)
    torch.testing.assert_close(masked[keys.ENTROPY], entropy, rtol=1e-4, atol=1e-6)
    chosen = [p.gather(-1, actions[..., i, None]).squeeze(-1).log() for i, p in enumerate(probs)]
    torch.testing.assert_close(masked[keys.LOG_PROB], sum(chosen), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(masked[keys.VALUES], unmasked[keys.VALUES])
    assert not torch.allclose(masked[keys.ENTROPY], unmasked[keys.ENTROPY], atol=1e-2)


@pytest.mark.parametrize("name", MASKED)
def test_policies_take_legal_actions_only(name):
    policy = make(name)
    policy.sampling.generator = torch.Generator().manual_seed(0)
    arrivals = random_arrivals(policy.spec, 30, 200, seed=3)
    sizes = policy.spec.actions.mask_sizes
    for greedy in (False, True) if name == "box-masked" else (False,):
        policy.sampling.greedy = greedy
        for t in range(30):
            actions = policy(step_td(arrivals, t))[keys.ACTIONS]
            assert was_legal(arrivals[keys.ACTION_MASK][t], actions, sizes).all()


@pytest.mark.parametrize("name", MASKED)
def test_a_call_without_the_mask_is_refused_and_remembers_nothing(name):
    policy = make(name)
    td = step_td(random_arrivals(policy.spec, 1, 3, seed=0), 0).exclude(keys.ACTION_MASK)
    with pytest.raises(KeyError, match=r"action_mask.*masked"):
        policy(td)
    assert all((leaf == 0).all() for leaf in policy.get_memory())


def test_a_forward_that_ignores_the_mask_is_refused(monkeypatch):
    policy = make("new-lstm-policy-masked")
    policy(step_td(random_arrivals(policy.spec, 1, 3, seed=0), 0))  # an earlier call's mask does not count
    monkeypatch.setattr(type(policy), "only_legal", lambda self, td, params: params)
    with pytest.raises(RuntimeError, match=r"ignored the action mask of masked.*self.only_legal\(td, logits\)"):
        policy(step_td(random_arrivals(policy.spec, 1, 3, seed=0), 0))


def was_legal(mask: torch.Tensor, actions: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
    """[N] bool: every choice in actions [N] or [N, choices] is one that mask [N, sum(sizes)] allows."""
    chosen = actions.reshape(len(mask), len(sizes))
    parts = mask.split(list(sizes), -1)
    return torch.stack([part.gather(1, chosen[:, i : i + 1]).squeeze(1) for i, part in enumerate(parts)]).all(0)
