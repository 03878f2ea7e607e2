"""Guarantee 3: nothing before a `first` changes anything after it, and no gradient crosses it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.policies.tensordict_api import read_state
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

FLAGS = [keys.DONES, keys.TRUNCATEDS]


def with_one_first(spec, T, B, seed, at, slot, flag):
    arrivals = random_arrivals(spec, T, B, seed, end_rate=0.0)
    arrivals[flag][at, slot] = True
    return arrivals


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
@settings(max_examples=4, deadline=None)
@given(
    T=st.integers(1, 8),
    B=st.integers(1, 4),
    layers=st.integers(1, 3),
    seed=st.integers(0, 999),
    data=st.data(),
)
def test_nothing_before_a_first_affects_what_follows(name, core, flag, T, B, layers, seed, data):
    at, slot = data.draw(st.integers(0, T - 1)), data.draw(st.integers(0, B - 1))
    policy = make(name, core, layers, seed)
    arrivals = with_one_first(policy.spec, T, B, seed, at, slot, flag)
    other = {key: x.clone() for key, x in arrivals.items()}
    different = random_arrivals(policy.spec, T, B, seed + 1)
    other[keys.OBS][:at, slot] = different[keys.OBS][:at, slot]
    for key in (keys.REWARDS, keys.LAST_ACTIONS):  # those that arrive with the `first` belong to the episode before
        other[key][: at + 1, slot] = different[key][: at + 1, slot]
    actions = random_actions(policy.spec, (T, B), torch.Generator().manual_seed(seed))
    start, other_start = random_state(policy, B, seed), random_state(policy, B, seed)
    for leaf in other_start:
        leaf[:, slot] += 1.0

    one = score(policy, arrivals, start, actions)
    two = score(policy, other, other_start, actions)
    for key in (keys.LOG_PROB, keys.VALUES, keys.FULL_LOG_PROBS):
        assert torch.equal(one[key][at:, slot], two[key][at:, slot])
    for leaf in range(len(start)):
        final = [read_state(x.transpose(0, 1), len(start), B, T, keys.FINAL_STATE)[leaf] for x in (one, two)]
        assert torch.equal(final[0][:, slot], final[1][:, slot])


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize(("name", "core"), [p for p in EVERY_POLICY_AND_CELL if p[0] in ("box", "new-lstm-policy")])
@settings(max_examples=4, deadline=None)
@given(T=st.integers(2, 8), layers=st.integers(1, 3), seed=st.integers(0, 999), data=st.data())
def test_gradient_is_zero_across_a_first_and_not_within_an_episode(name, core, flag, T, layers, seed, data):
    B, slot = 2, 0
    at = data.draw(st.integers(1, T - 1))
    policy = make(name, core, layers, seed)
    arrivals = with_one_first(policy.spec, T, B, seed, at, slot, flag)
    arrivals[keys.OBS].requires_grad_()
    start = tuple(leaf.requires_grad_() for leaf in random_state(policy, B, seed))
    actions = random_actions(policy.spec, (T, B), torch.Generator().manual_seed(seed))
    out = score(policy, arrivals, start, actions)

    after = out[keys.VALUES][at:, slot].sum() + out[keys.LOG_PROB][at:, slot].sum()
    obs_grad, *state_grads = torch.autograd.grad(after, [arrivals[keys.OBS], *start], retain_graph=True)
    assert (obs_grad[:at] == 0).all()
    assert (obs_grad[at, slot] != 0).any()
    for grad in state_grads:
        assert (grad[:, slot] == 0).all()

    other = out[keys.VALUES][T - 1, 1]  # the other slot's episode does not end, so its past must matter
    obs_grad, *state_grads = torch.autograd.grad(other, [arrivals[keys.OBS], *start])
    assert (obs_grad[0, 1] != 0).any()
    for grad in state_grads:
        assert (grad[:, 1] != 0).any()


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
def test_acting_resets_exactly_the_slots_that_ended(name, core, flag):
    """Flags of any dtype are masks: an integer flag must not be used as a slot index."""
    B = 4
    policy = make(name, core)
    arrivals = random_arrivals(policy.spec, 3, B, seed=1, end_rate=0.0)
    for t in range(2):
        policy(step_td(arrivals, t))
    remembered = policy.get_memory()
    carried = policy(step_td(arrivals, 2), state=remembered)[keys.VALUES]
    arrivals[flag][2, 1] = True
    for dtype in (torch.bool, torch.int64, torch.uint8, torch.float32):
        arrivals[flag] = arrivals[flag].to(dtype)
        policy.reset_memory()
        clean, fresh = policy(step_td(arrivals, 2))[keys.VALUES], policy.get_memory()[0]
        policy.set_memory(remembered)
        values, memory = policy(step_td(arrivals, 2))[keys.VALUES], policy.get_memory()[0]
        torch.testing.assert_close(values[1], clean[1])
        torch.testing.assert_close(memory[:, 1], fresh[:, 1])
        for slot in (0, 2, 3):
            torch.testing.assert_close(values[slot], carried[slot])
            assert not torch.allclose(memory[:, slot], fresh[:, slot], atol=1e-4), f"slot {slot} lost its memory"


@pytest.mark.parametrize("core", ["lstm", "gru", "mingru"])
def test_memory_survives_an_episode_end_only_with_lifetime_scope(core):
    policy = make("box", core)
    arrivals = random_arrivals(policy.spec, 2, 2, seed=1, end_rate=0.0)
    policy(step_td(arrivals, 0))
    before = policy.get_memory()
    arrivals[keys.DONES][1] = True
    policy.memory_scope = "lifetime"
    kept = policy(step_td(arrivals, 1), state=before)
    policy.memory_scope = "episode"
    reset = policy(step_td(arrivals, 1), state=before)
    assert not torch.allclose(kept[keys.VALUES], reset[keys.VALUES], atol=1e-4)
