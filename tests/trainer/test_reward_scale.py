"""trainer.normalize_rewards: the unit of the rewards makes no difference."""

import pytest
import torch

from holdfast.ranks import Shards
from holdfast.trainer.reward_scale import RewardScale


class Rollout:
    """What RewardScale reads of an experience buffer: rewards [R + 1, S] and where episodes end."""

    def __init__(self, rewards, dones):
        self.rewards, self.dones = torch.tensor(rewards), torch.tensor(dones)

    def outcomes(self):
        none = torch.zeros_like(self.dones)
        return {"rewards": self.rewards, "dones": self.dones, "truncateds": none, "valid": ~none[1:]}


def test_the_factor_by_hand():
    scale = RewardScale(0.5, Shards())
    assert scale.factor == 1.0
    scale.update([Rollout([[0.0], [0.0], [0.0]], [[True], [False], [False]])])
    assert scale.factor == 1.0  # nothing to scale by yet
    scale.update([Rollout([[0.0], [4.0], [2.0]], [[False], [False], [True]])])
    # sums 0, 0, 4, 2 + 4/2 = 4: their mean square is 32 / 4
    assert scale.factor == pytest.approx(8**-0.5)
    scale.update([Rollout([[9.0], [0.0], [8.0]], [[True], [False], [False]])])
    assert scale.factor == pytest.approx((96 / 6) ** -0.5)  # the new episode starts from 0


def test_equal_rewards_have_a_scale():
    scale = RewardScale(0.0, Shards())
    scale.update([Rollout([[0.0], *[[5.0]] * 10], [[True], *[[False]] * 10])])
    assert scale.factor == pytest.approx(1 / 5)
