"""Guarantee 4: no slot's output depends on another slot, for any subset of slots in any order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.spec import keys
from support.policies import (
    EVERY_POLICY_AND_CELL,
    make,
    random_actions,
    random_arrivals,
    random_state,
    score,
    step_td,
)


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
@settings(max_examples=5, deadline=None)
@given(
    T=st.integers(1, 7),
    B=st.integers(2, 6),
    layers=st.integers(1, 3),
    seed=st.integers(0, 999),
    data=st.data(),
)
def test_a_subset_of_slots_scores_the_same_as_in_the_full_batch(name, core, T, B, layers, seed, data):
    subset = torch.tensor(data.draw(st.lists(st.integers(0, B - 1), min_size=1, max_size=B, unique=True)))
    policy = make(name, core, layers, seed)
    arrivals = random_arrivals(policy.spec, T, B, seed)
    actions = random_actions(policy.spec, (T, B), torch.Generator().manual_seed(seed))
    start = random_state(policy, B, seed)
    full = score(policy, arrivals, start, actions)
    part = score(
        policy,
        {k: x[:, subset] for k, x in arrivals.items()},
        tuple(s[:, subset] for s in start),
        actions[:, subset],
    )
    for key in (keys.LOG_PROB, keys.VALUES, keys.ENTROPY):
        torch.testing.assert_close(part[key], full[key][:, subset], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
@settings(max_examples=4, deadline=None)
@given(B=st.integers(2, 6), seed=st.integers(0, 999), data=st.data())
def test_slots_may_act_in_any_groups_and_order(name, core, B, seed, data):
    """Slots that act in groups, regrouped at every step, get the same values as slots that always act together."""
    T = 4
    together, split = make(name, core, 2, seed), make(name, core, 2, seed)
    arrivals = random_arrivals(together.spec, T, B, seed)
    for t in range(T):
        expected = together(step_td(arrivals, t))[keys.VALUES]
        order = data.draw(st.permutations(range(B)))
        cut = data.draw(st.integers(1, B))
        for group in (order[:cut], order[cut:]):
            if group:
                slots = torch.tensor(group)
                values = split(step_td(arrivals, t, slots))[keys.VALUES]
                torch.testing.assert_close(values, expected[slots], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
def test_training_env_id_start_selects_the_slots(name, core):
    """training_env_id_start and the batch size name a range of slots; each slot keeps its own row of memory."""
    policy, whole = make(name, core), make(name, core)
    arrivals = random_arrivals(policy.spec, 3, 4, seed=2)
    for t in range(3):
        expected = whole(step_td(arrivals, t))[keys.VALUES]
        for start, stop in [(0, 4)] if t == 1 else [(2, 4), (0, 2)]:
            td = step_td({k: x[:, start:stop] for k, x in arrivals.items()}, t)
            td[keys.SLOT_START] = torch.full((stop - start,), start)
            torch.testing.assert_close(policy(td)[keys.VALUES], expected[start:stop], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("name", "core"), [p for p in EVERY_POLICY_AND_CELL if p[0] in ("box", "new-lstm-policy")])
def test_gradients_stay_in_their_slot(name, core):
    T, B = 5, 3
    policy = make(name, core)
    arrivals = random_arrivals(policy.spec, T, B, seed=4)
    arrivals[keys.OBS].requires_grad_()
    start = tuple(leaf.requires_grad_() for leaf in random_state(policy, B, 4))
    actions = random_actions(policy.spec, (T, B), torch.Generator().manual_seed(1))
    out = score(policy, arrivals, start, actions)
    for slot in range(B):
        loss = out[keys.VALUES][:, slot].sum() + out[keys.LOG_PROB][:, slot].sum()
        obs_grad, *state_grads = torch.autograd.grad(loss, [arrivals[keys.OBS], *start], retain_graph=True)
        others = [b for b in range(B) if b != slot]
        assert (obs_grad[:, others] == 0).all()
        assert all((grad[:, others] == 0).all() for grad in state_grads)
        assert (obs_grad[:, slot] != 0).any()


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
def test_resetting_one_slot_leaves_the_others(name, core):
    policy = make(name, core)
    arrivals = random_arrivals(policy.spec, 2, 4, seed=6, end_rate=0.0)
    policy(step_td(arrivals, 0))
    before = policy.get_memory()
    policy.reset_env_memory(2)
    for old, new in zip(before, policy.get_memory(), strict=True):
        assert (new[:, 2] == 0).all()
        assert torch.equal(new[:, [0, 1, 3]], old[:, [0, 1, 3]])
