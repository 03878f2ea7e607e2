"""Guarantee 1: before the first update, scoring a stored step gives the stored log-prob and value."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.policies.parts import linear
from holdfast.ppo import Experience
from holdfast.rollout import Collector
from holdfast.spec import keys
from support.policies import EVERY_POLICY_AND_CELL, make, score
from support.worlds import ScriptedWorld

LIMIT = 1e-5


def collect(policy, num_slots, horizon, segments, rollouts, end_rate=0.2, seed=0, **collector_options):
    world = ScriptedWorld(policy.spec, num_slots, end_rate)
    actions = policy.spec.actions
    experience = Experience(
        {**policy.get_agent_experience_spec(), keys.ACTIONS: (actions.shape, actions.dtype)},
        num_slots,
        horizon,
        segments,
        policy.state_shapes,
        poison=True,
    )
    collector = Collector(world, policy, experience, **collector_options)
    collector.start(seed)
    for _ in range(rollouts):
        collector.collect()
    return experience, collector, world


def worst_difference(policy, experience, ids):
    batch = experience.segments(ids)
    with torch.enable_grad():  # learning's kernels, not acting's
        scored = score(policy, batch.inputs, batch.start_state, batch.actions)
    log_prob = (scored[keys.LOG_PROB] - batch.log_prob).abs().max()
    value = (scored[keys.VALUES] - batch.values).abs().max()
    return float(log_prob.detach()), float(value.detach())


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
@settings(max_examples=4, deadline=None)
@given(
    num_slots=st.integers(1, 5),
    horizon=st.integers(1, 9),
    segments=st.integers(1, 3),
    rollouts=st.integers(1, 3),
    layers=st.integers(1, 3),
    end_rate=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_scoring_reproduces_every_stored_step(
    name, core, num_slots, horizon, segments, rollouts, layers, end_rate, seed, data
):
    policy = make(name, core, layers, seed)
    experience, _, _ = collect(policy, num_slots, horizon, segments, rollouts, end_rate, seed)
    subset = data.draw(st.lists(st.integers(0, experience.num_segments - 1), min_size=1, max_size=4))
    for ids in (torch.arange(experience.num_segments), torch.tensor(subset)):
        assert max(worst_difference(policy, experience, ids)) <= LIMIT


def test_parity_holds_when_memory_is_reset_before_each_rollout():
    policy = make("box", "lstm")
    experience, _, _ = collect(policy, 3, 4, 2, 3, reset_memory_each_rollout=True)
    assert max(worst_difference(policy, experience, torch.arange(6))) <= LIMIT


@pytest.mark.parametrize("name", ["fast", "agent=fast"])
def test_parity_holds_with_linear_layers_of_onednn(name, monkeypatch):
    """Whatever this processor prefers: the layers that are wide enough use oneDNN, in acting and in learning."""
    products = []
    monkeypatch.setattr(linear, "USE_ONEDNN", True)
    product = linear._product
    monkeypatch.setattr(linear, "_product", lambda *args: products.append(args) or product(*args))
    policy = make(name, "lstm")
    experience, _, _ = collect(policy, 3, 4, 2, 2)
    assert products
    assert max(worst_difference(policy, experience, torch.arange(6))) <= LIMIT


@pytest.mark.parametrize(("name", "core"), [("box", "lstm"), ("box", "gru"), ("box", "mingru"), ("box+sees", "lstm")])
def test_parity_holds_with_lifetime_memory(name, core):
    policy = make(name, core, memory_scope="lifetime")
    experience, _, _ = collect(policy, 3, 5, 2, 2, end_rate=0.5)
    assert max(worst_difference(policy, experience, torch.arange(6))) <= LIMIT


@pytest.mark.parametrize("wrong", ["zeros", "shifted", "other slot", "half"])
def test_parity_detects_a_wrong_start_state(wrong):
    """Show that the parity measure can fail: every wrong start state exceeds the limit a hundredfold."""
    policy = make("box", "lstm")
    experience, _, _ = collect(policy, 4, 5, 3, 2, end_rate=0.0)
    batch = experience.segments(torch.arange(4, 8))
    h, c = batch.start_state
    start = {
        "zeros": (torch.zeros_like(h), torch.zeros_like(c)),
        "shifted": experience.segments(torch.arange(0, 4)).start_state,
        "other slot": (h.roll(1, 1), c.roll(1, 1)),
        "half": (torch.zeros_like(h), c),
    }[wrong]
    scored = score(policy, batch.inputs, start, batch.actions)
    assert float((scored[keys.LOG_PROB] - batch.log_prob).abs().max().detach()) > 100 * LIMIT
