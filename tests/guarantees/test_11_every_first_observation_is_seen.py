"""Guarantee 11: the policy acts on every first observation, no terminal observation enters the next episode's memory,
and a truncated episode bootstraps from V(final observation) with the memory of the episode that was cut."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.ppo import Experience
from holdfast.rollout import Collector
from holdfast.spec import keys
from support.policies import make, value_of
from support.worlds import ScriptedWorld


def collector_for(policy, num_slots, horizon, end_rate):
    world = ScriptedWorld(policy.spec, num_slots, end_rate)
    actions = policy.spec.actions
    experience = Experience(
        {**policy.get_agent_experience_spec(), keys.ACTIONS: (actions.shape, actions.dtype)},
        num_slots,
        horizon,
        2,
        policy.state_shapes,
    )
    return Collector(world, policy, experience), experience, world


@pytest.mark.parametrize("core", ["lstm", "gru", "mingru"])
@settings(max_examples=15, deadline=None)
@given(
    num_slots=st.integers(1, 4),
    horizon=st.integers(1, 6),
    end_rate=st.sampled_from([0.1, 0.5, 1.0]),
    seed=st.integers(0, 99),
)
def test_the_policy_acts_on_every_observation_except_final_ones(core, num_slots, horizon, end_rate, seed):
    policy = make("box", core)
    collector, experience, world = collector_for(policy, num_slots, horizon, end_rate)
    seen = []
    act = policy.act
    vars(policy)["act"] = lambda inputs, state: seen.append(inputs[keys.OBS][0].clone()) or act(inputs, state)
    collector.start(seed)
    collector.collect()
    rows = experience.num_rows
    assert torch.equal(torch.stack(seen), torch.stack([torch.from_numpy(x) for x in world.shown[:rows]]))
    for (step, slot), final in world.finals.items():
        if step < rows:
            assert not (seen[step][slot] == torch.from_numpy(final)).all()


@pytest.mark.parametrize("core", ["lstm", "gru", "mingru"])
@settings(max_examples=15, deadline=None)
@given(num_slots=st.integers(1, 4), horizon=st.integers(1, 6), seed=st.integers(0, 99))
def test_truncation_bootstraps_with_the_memory_of_the_truncated_episode(core, num_slots, horizon, seed):
    policy = make("box", core)
    collector, experience, world = collector_for(policy, num_slots, horizon, end_rate=0.6)
    collector.start(seed)
    collector.collect()
    whole, outcomes = experience.whole(), experience.outcomes()
    arrivals = {k: x.clone() for k, x in whole.inputs.items()}
    checked = 0
    for (step, slot), final in world.finals.items():
        if outcomes["dones"][step, slot] or not outcomes["truncateds"][step, slot]:
            continue
        # By hand: replay the slot up to the truncation, then compute the value of the final observation.
        state = tuple(leaf[:, slot : slot + 1] for leaf in whole.start_state)
        for t in range(step):
            one = {k: x[t, slot : slot + 1] for k, x in arrivals.items()}
            td = policy(_td(one), state=state, action=whole.actions[t, slot : slot + 1])
            state = tuple(td[f"{keys.FINAL_STATE}{i}"].transpose(0, 1) for i in range(len(state)))
        last = {k: torch.zeros_like(x[0, slot : slot + 1]) for k, x in arrivals.items()}
        last[keys.OBS] = torch.from_numpy(final)[None]
        expected = value_of(policy, last, state)
        torch.testing.assert_close(outcomes["final_values"][step - 1, slot], expected[0], rtol=1e-5, atol=1e-5)
        checked += 1
    assert checked or not outcomes["truncateds"][1:].logical_and(~outcomes["dones"][1:]).any()


def _td(columns):
    from tensordict import TensorDict

    return TensorDict(columns, batch_size=[1])


def test_episode_returns_include_the_last_reward():
    policy = make("box")
    collector, _, world = collector_for(policy, 2, 10, end_rate=0.4)
    collector.start(0)
    rewards = []
    step = world.step

    def recording_step(actions):
        out = step(actions)
        rewards.append((out[1].copy(), (out[2] | out[3]).copy()))
        return out

    world.step = recording_step
    episodes = collector.collect().episodes
    expected = []
    sums = [0.0, 0.0]
    for reward, ended in rewards:
        for slot in range(2):
            sums[slot] += float(reward[slot])
            if ended[slot]:
                expected.append(sums[slot])
                sums[slot] = 0.0
    assert [e.episode_return for e in episodes] == pytest.approx(expected)
