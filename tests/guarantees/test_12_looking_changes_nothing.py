"""Guarantee 12: computing a value, a bootstrap or an evaluation changes neither rollout memory nor random state."""

import pytest
import torch

from holdfast.envs import GymEnv
from holdfast.evaluate import evaluate
from holdfast.policies import BoxPolicy
from holdfast.spec import keys
from support.policies import (
    EVERY_POLICY_AND_CELL,
    make,
    random_actions,
    random_arrivals,
    score,
    state_after,
    step_td,
    value_of,
)


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
def test_pure_calls_between_steps_leave_a_rollout_bit_identical(name, core):
    T, B = 6, 3

    def act(with_pure_calls: bool) -> list[torch.Tensor]:
        policy = make(name, core)
        arrivals = random_arrivals(policy.spec, T, B, seed=1)
        other = random_arrivals(policy.spec, 4, 5, seed=9)
        torch.manual_seed(0)
        policy.sampling.generator = torch.Generator().manual_seed(0)
        seen = []
        for t in range(T):
            if with_pure_calls:
                state = policy.memory.read(torch.arange(5))
                value_of(policy, {k: x[0] for k, x in other.items()}, state)
                actions = random_actions(policy.spec, (4, 5), torch.Generator().manual_seed(t))
                score(policy, other, state, actions)
                state_after(policy, other, state, actions)
                policy(step_td(other, 1), action=actions[0])  # without a state, scoring starts from zero
                policy.get_memory()
            out = policy(step_td(arrivals, t))
            seen += [out[keys.ACTIONS], out[keys.VALUES], *policy.memory.read(torch.arange(B))]
        return seen

    for alone, mixed in zip(act(with_pure_calls=False), act(with_pure_calls=True), strict=True):
        assert torch.equal(alone, mixed)


@pytest.mark.parametrize("greedy", [True, False])
def test_an_evaluation_between_steps_changes_nothing(greedy):
    env = GymEnv(name="gym:CartPole-v1", num_envs=2, hide=[1, 3])
    spec = env.describe()
    torch.manual_seed(0)
    policy = BoxPolicy(spec)
    policy.sampling.generator = torch.Generator().manual_seed(0)
    arrivals = random_arrivals(spec, 2, 4, seed=1, end_rate=0.0)
    policy(step_td(arrivals, 0))
    before, random_before = policy.get_memory(), policy.sampling.generator.get_state()
    global_before = torch.get_rng_state()
    evaluate(policy, env, episodes=3, seed=5, greedy=greedy)
    assert all(torch.equal(a, b) for a, b in zip(policy.get_memory(), before, strict=True))
    assert torch.equal(policy.sampling.generator.get_state(), random_before)
    assert torch.equal(torch.get_rng_state(), global_before)
