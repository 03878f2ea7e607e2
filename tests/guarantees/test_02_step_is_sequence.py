"""Guarantee 2: T calls of one step equal one call of T steps, outputs and final state."""

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

OUTPUTS = (keys.LOG_PROB, keys.VALUES, keys.ENTROPY, keys.FULL_LOG_PROBS)


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
@settings(max_examples=5, deadline=None)
@given(
    T=st.integers(1, 9),
    B=st.integers(1, 5),
    layers=st.integers(1, 3),
    end_rate=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 1000),
)
def test_steps_equal_a_sequence(name, core, T, B, layers, end_rate, seed):
    policy = make(name, core, layers, seed)
    arrivals = random_arrivals(policy.spec, T, B, seed, end_rate)
    actions = random_actions(policy.spec, (T, B), torch.Generator().manual_seed(seed))
    start = random_state(policy, B, seed)

    whole = score(policy, arrivals, start, actions)
    final = read_state(whole.transpose(0, 1), len(start), B, T, keys.FINAL_STATE)
    state = start
    for t in range(T):
        out = policy(step_td(arrivals, t), state=state, action=actions[t])
        state = read_state(out, len(start), B, 1, keys.FINAL_STATE)
        for key in OUTPUTS:
            torch.testing.assert_close(out[key], whole[key][t], rtol=1e-5, atol=2e-6)
    for leaf, expected in zip(state, final, strict=True):
        torch.testing.assert_close(leaf, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
def test_acting_from_memory_equals_a_sequence(name, core):
    """The memory table holds the state that a sequence passes from step to step."""
    T, B = 7, 3
    policy = make(name, core)
    arrivals = random_arrivals(policy.spec, T, B, seed=3)
    acted = [policy(step_td(arrivals, t)) for t in range(T)]
    actions = torch.stack([out[keys.ACTIONS] for out in acted])
    whole = score(policy, arrivals, policy.initial_state(B), actions)
    for key in (keys.LOG_PROB, keys.VALUES, keys.FULL_LOG_PROBS):
        torch.testing.assert_close(torch.stack([out[key] for out in acted]), whole[key], rtol=1e-5, atol=2e-6)
    final = read_state(whole.transpose(0, 1), len(policy.state_shapes), B, T, keys.FINAL_STATE)
    for leaf, expected in zip(policy.get_memory(), final, strict=True):
        torch.testing.assert_close(leaf, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["fast", "box", "box-reals"])
def test_time_and_slots_are_not_mixed(name):
    """With B = T a wrong reshape raises nothing, so compare each slot with the same slot scored alone."""
    T = B = 4
    policy = make(name)
    arrivals = random_arrivals(policy.spec, T, B, seed=5)
    actions = random_actions(policy.spec, (T, B), torch.Generator().manual_seed(1))
    start = random_state(policy, B, seed=2)
    whole = score(policy, arrivals, start, actions)
    for b in range(B):
        column = {key: x[:, b : b + 1] for key, x in arrivals.items()}
        alone = score(policy, column, tuple(leaf[:, b : b + 1] for leaf in start), actions[:, b : b + 1])
        torch.testing.assert_close(alone[keys.VALUES][:, 0], whole[keys.VALUES][:, b], rtol=1e-5, atol=2e-6)
