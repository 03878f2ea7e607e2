"""Guarantee 8: N episodes in one environment equal N fresh evaluations."""

import gymnasium
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from holdfast.envs import CollectEnv, GymEnv
from holdfast.evaluate import evaluate
from holdfast.policies import BoxPolicy, Fast


class SameEveryTime(gymnasium.Env):
    """Episodes do not depend on the seed, and every action changes the return."""

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
    gymnasium.register("SameEveryTime-v0", lambda **kwargs: SameEveryTime(**kwargs))
    yield
    gymnasium.registry.pop("SameEveryTime-v0")


@pytest.mark.parametrize(("core", "sees"), [("lstm", []), ("gru", []), ("mingru", []), ("lstm", ["action", "reward"])])
def test_later_episodes_equal_the_first(core, sees):
    env = GymEnv(name="gym:SameEveryTime-v0", num_envs=1)
    torch.manual_seed(1)
    policy = BoxPolicy(env.describe(), core=core, sees=sees)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.2 * torch.randn_like(p))
    many = evaluate(policy, env, episodes=5, seed=0, num_envs=1)
    fresh = evaluate(policy, env, episodes=1, seed=0, num_envs=1)
    assert len(many.returns) == 5
    assert many.returns == pytest.approx([fresh.returns[0]] * 5, abs=1e-6)
    assert abs(fresh.returns[0]) > 1e-3  # a policy whose actions are all 0 would pass


def test_later_episodes_differ_with_lifetime_memory():
    """Show that the test above can fail."""
    env = GymEnv(name="gym:SameEveryTime-v0", num_envs=1)
    torch.manual_seed(1)
    policy = BoxPolicy(env.describe(), memory_scope="lifetime")
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.2 * torch.randn_like(p))
    returns = evaluate(policy, env, episodes=2, seed=0, num_envs=1).returns
    assert abs(returns[0] - returns[1]) > 1e-3


def test_memory_from_before_the_evaluation_has_no_effect():
    env = GymEnv(name="gym:SameEveryTime-v0", num_envs=1)
    policy = BoxPolicy(env.describe())
    clean = evaluate(policy, env, episodes=2, seed=0)
    flags = torch.zeros(1, dtype=torch.bool)
    policy(
        TensorDict({"env_obs": torch.ones(1, 3), "rewards": torch.zeros(1), "dones": flags, "truncateds": flags}, [1])
    )
    assert evaluate(policy, env, episodes=2, seed=0).returns == clean.returns


def test_episodes_depend_on_their_own_seed_only():
    """More episodes per slot add episodes and change none. Pendulum's returns differ for every seed."""
    env = GymEnv(name="gym:Pendulum-v1", num_envs=1, hide=[2])
    torch.manual_seed(0)
    policy = BoxPolicy(env.describe())
    one = evaluate(policy, env, episodes=3, seed=3, num_envs=3).returns
    longer = evaluate(policy, env, episodes=6, seed=3, num_envs=3).returns
    assert longer[:3] == one  # all episodes last 200 steps, so each slot's first comes before any second
    assert len(set(longer)) == 6
    assert evaluate(policy, env, episodes=3, seed=4, num_envs=3).returns != one


@pytest.mark.parametrize("episodes", [2, 6])
def test_desync_does_not_shorten_evaluation_episodes(episodes):
    env = CollectEnv(num_envs=3, agents=2, max_steps=12, desync=True)
    torch.manual_seed(0)
    assert evaluate(Fast(env.describe()), env, episodes=episodes, seed=0).length_mean == 12


def test_evaluation_may_use_more_slots_than_training():
    env = GymEnv(name="gym:SameEveryTime-v0", num_envs=1)
    policy = BoxPolicy(env.describe())
    policy.set_memory(tuple(torch.randn(layers, 2, hidden) for layers, hidden in policy.state_shapes))
    assert len(evaluate(policy, env, episodes=7, seed=0, num_envs=7).returns) == 7
