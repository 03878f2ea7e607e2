"""trainer.normalize_rewards: the unit of the rewards makes no difference."""

import pytest
import torch

from holdfast.ppo import Experience
from holdfast.ranks import Shards
from holdfast.trainer.reward_scale import RewardScale


class Rollout(Experience):
    """What RewardScale reads of an experience buffer: rewards [R + 1, S] and where episodes end."""

    def __init__(self, rewards, dones):
        self.rewards, self.dones = torch.tensor(rewards), torch.tensor(dones)
        self.num_rows = len(rewards) - 1

    def outcomes(self):
        none = torch.zeros_like(self.dones)
        return {"rewards": self.rewards, "dones": self.dones, "truncateds": none, "valid": ~none[1:]}


def test_the_factor_by_hand():
    scale = RewardScale(0.5, Shards())
    assert scale.factor == 1.0
    scale.update([Rollout([[0.0], [0.0], [0.0]], [[True], [False], [False]])])
    assert scale.factor == 1.0  # nothing to scale by yet, and these steps do not count
    scale.update([Rollout([[0.0], [3.0], [2.0]], [[False], [False], [True]])])
    assert scale.factor == pytest.approx((20 / 2) ** -0.5)  # returns 3 + 2/2 = 4, and 2
    scale.update([Rollout([[9.0], [0.0], [8.0]], [[True], [False], [False]])])
    assert scale.factor == pytest.approx((100 / 4) ** -0.5)  # and 8/2 = 4, and 8


def test_the_scale_is_kept_after_the_first_steps_unless_returns_grow_by_far():
    scale = RewardScale(0.0, Shards())  # a discount horizon is one step
    rollout = [[0.0], *[[1.0]] * 5], [[True], *[[False]] * 5]
    scale.update([Rollout(*rollout)])
    for _ in range(20):
        scale.update([Rollout([[5 * x for x in row] for row in rollout[0]], rollout[1])])
    assert scale.factor == 1.0
    for _ in range(100):
        scale.update([Rollout([[1000 * x for x in row] for row in rollout[0]], rollout[1])])
    assert scale.factor < 1 / 50


def test_equal_rewards_have_a_scale():
    scale = RewardScale(0.0, Shards())
    scale.update([Rollout([[0.0], *[[5.0]] * 10], [[True], *[[False]] * 10])])
    assert scale.factor == pytest.approx(1 / 5)
