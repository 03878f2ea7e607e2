"""Turn-based PettingZoo games as slots: no reward is lost, and whoever waits has one legal action."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import toy_aec

from holdfast.envs import PettingZooEnv, World, make_world
from holdfast.errors import HoldfastError
from holdfast.spec import DiscreteActions


def game(num_envs: int = 2, action_mask: bool | None = None, **kwargs: Any) -> PettingZooEnv:
    return PettingZooEnv(name="pettingzoo:toy_aec", num_envs=num_envs, action_mask=action_mask, kwargs=kwargs)


def returns_by_hand(actions: dict[str, list[int]], **kwargs: Any) -> dict[str, float]:
    """Play the game itself, as PettingZoo's documentation shows, and sum what `last()` reports."""
    env, left, sums = (
        toy_aec.env(**kwargs),
        {name: iter(chosen) for name, chosen in actions.items()},
        defaultdict(float),
    )
    env.reset(seed=0)
    for agent in env.agent_iter():
        _, reward, terminated, truncated, _ = env.last()
        sums[agent] += reward
        env.step(None if terminated or truncated else next(left[agent]))
    return dict(sums)


def play_one_episode(world: World, rng: np.random.Generator) -> tuple[dict[str, list[int]], dict[str, float]]:
    """Play with random legal actions. Return the actions that counted and the sum of rewards, by agent."""
    agents = toy_aec.NAMES[: world.num_slots]
    acted, sums = {name: [] for name in agents}, dict.fromkeys(agents, 0.0)
    world.reset(seed=0)
    running = np.ones(world.num_slots, bool)
    while world.buffers.episode[0] == 0:
        masks = world.buffers.action_mask.copy()
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
        for slot, name in enumerate(agents):
            if running[slot] and masks[slot].sum() > 1:
                acted[name].append(int(actions[slot]))
        _, rewards, terminated, truncated, info = world.step(actions)
        for slot, name in enumerate(agents):
            sums[name] += float(rewards[slot])
        running &= info["valid"] & ~(terminated | truncated)
    return acted, sums


@pytest.mark.parametrize(
    "kwargs",
    [
        {"turns": (3, 3)},
        {"turns": (1, 3, 2)},
        {"turns": (1, 3, 2), "late": True},
        {"turns": (4, 1, 1), "late": True},
        {"turns": (2, 3), "dicts": True},
    ],
    ids=str,
)
def test_no_reward_is_lost(kwargs):
    with make_world(game(1, **kwargs)) as world:
        actions, sums = play_one_episode(world, np.random.default_rng(3))
    assert {name: len(chosen) for name, chosen in actions.items()} == dict(
        zip(toy_aec.NAMES, kwargs["turns"], strict=False)
    )
    assert sums == pytest.approx(returns_by_hand(actions, **kwargs))


def test_both_players_have_slots_and_one_acts_at_a_time():
    with make_world(game()) as world:
        assert world.num_slots == 4
        _, info = world.reset(seed=0)
        for step in range(5):
            legal = info["action_mask"].sum(1).reshape(2, 2)
            assert legal.tolist() == [[3, 1], [1, 3]][step % 2 : step % 2 + 1] * 2
            info = world.step(np.zeros(4, int))[4]


def test_masks_in_observations_count_without_a_setting():
    with make_world(game(1, dicts=True)) as world:
        _, info = world.reset(seed=0)
        assert info["action_mask"].tolist() == [[False, True, True], [True, False, False]]


def test_masks_in_infos_are_read_if_the_setting_says_so():
    with make_world(game(1, action_mask=True, gives_masks=True)) as world:
        assert isinstance(world.world_spec.actions, DiscreteActions)
        _, info = world.reset(seed=0)
        assert info["action_mask"][0].tolist() == [False, True, True]
    with make_world(game(1, action_mask=True)) as world, pytest.raises(HoldfastError, match="no info"):
        world.reset(seed=0)


def test_a_parallelizable_game_is_played_in_parallel():
    with make_world(game(1, parallelizable=True)) as world:
        _, info = world.reset(seed=0)
        assert "action_mask" not in info
        _, rewards, *_ = world.step(np.array([2, 1]))
        assert rewards.tolist() == [1.0, 2.0]
        world.step(np.array([0, 0]))
        _, rewards, terminated, *_ = world.step(np.array([0, 2]))
        assert rewards.tolist() == [2.0, 0.0]
        assert terminated.all()


def test_a_game_of_pettingzoo():
    """The first player wins in its third move: +1 for the winner, -1 for the loser, who only waits then."""
    settings = PettingZooEnv(name="pettingzoo:pettingzoo.classic.tictactoe_v3", num_envs=1)
    with make_world(settings) as world:
        world.reset(seed=0)
        for first, second in ((0, 0), (0, 3), (1, 0), (0, 4)):
            _, rewards, *_ = world.step(np.array([first, second]))
            assert not rewards.any()
        _, rewards, terminated, *_ = world.step(np.array([2, 0]))
        assert rewards.tolist() == [1.0, -1.0]
        assert terminated.all()
