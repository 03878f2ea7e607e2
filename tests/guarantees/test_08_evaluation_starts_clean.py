"""Guarantee 8: N episodes in one environment equal N fresh evaluations."""

import gymnasium
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from holdfast.config.settings import GymEnv
from holdfast.envs import describe
from holdfast.evaluate import evaluate
from holdfast.policies import BoxPolicy
from support.policies import make


class SameEveryTime(gymnasium.Env):
    """An episode that is the same whatever the seed, and whose return shows everything the policy did in it."""

    observation_space = gymnasium.spaces.Box(-5.0, 5.0, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-10.0, 10.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        reward = float(action[0]) * 1.7**self.t
        return self._obs(), reward, self.t == 6, False, {}

    def _obs(self):
        return np.array([np.sin(self.t), np.cos(3 * self.t), 1.0], np.float32)


@pytest.fixture(autouse=True)
def _registered():
    gymnasium.register("SameEveryTime-v0", SameEveryTime)
    yield
    gymnasium.registry.pop("SameEveryTime-v0")


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_later_episodes_equal_the_first(core):
    env = GymEnv(name="gym:SameEveryTime-v0", num_envs=1)
    torch.manual_seed(1)
    policy = BoxPolicy(describe(env), core=core)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.2 * torch.randn_like(p))
    many = evaluate(policy, env, episodes=5, seed=0, num_envs=1)
    fresh = evaluate(policy, env, episodes=1, seed=0, num_envs=1)
    assert len(many.returns) == 5
    assert many.returns == pytest.approx([fresh.returns[0]] * 5, abs=1e-6)
    assert abs(fresh.returns[0]) > 1e-3  # a policy that did nothing would pass


def test_the_check_can_fail():
    """Memory kept across episodes on purpose makes later episodes differ, so the equality above says something."""
    env = GymEnv(name="gym:SameEveryTime-v0", num_envs=1)
    torch.manual_seed(1)
    policy = BoxPolicy(describe(env), memory_scope="lifetime")
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.2 * torch.randn_like(p))
    returns = evaluate(policy, env, episodes=2, seed=0, num_envs=1).returns
    assert abs(returns[0] - returns[1]) > 1e-3


def test_what_was_remembered_before_does_not_matter():
    env = GymEnv(name="gym:SameEveryTime-v0", num_envs=1)
    policy = BoxPolicy(describe(env))
    clean = evaluate(policy, env, episodes=2, seed=0)
    flags = torch.zeros(1, dtype=torch.bool)
    policy(
        TensorDict({"env_obs": torch.ones(1, 3), "rewards": torch.zeros(1), "dones": flags, "truncateds": flags}, [1])
    )
    assert evaluate(policy, env, episodes=2, seed=0).returns == clean.returns


def test_episodes_depend_on_their_own_seed_only():
    """Spreading the same episodes over more environments changes which seeds are used, never how an episode goes."""
    env = GymEnv(name="gym:CartPole-v1", num_envs=1, hide=[1, 3])
    torch.manual_seed(0)
    policy = BoxPolicy(describe(env))
    one = evaluate(policy, env, episodes=4, seed=3, num_envs=4).returns
    again = evaluate(policy, env, episodes=4, seed=3, num_envs=4).returns
    longer = evaluate(policy, env, episodes=8, seed=3, num_envs=4).returns
    assert one == again
    assert set(one) <= set(longer)


def test_more_slots_than_trained_with_is_fine():
    policy = make("box")
    policy.set_memory(tuple(torch.randn(layers, 2, hidden) for layers, hidden in policy.state_shapes))
    assert policy.memory.read(torch.tensor([0, 5]))[0].shape[1] == 2
