"""collect and arena: what random play earns, what pays, and maps that fit."""

# pyright: reportAttributeAccessIssue=false
# Settings and specs are unions; each test knows which member it has.

import numpy as np
import pytest

from holdfast.envs import ArenaEnv, CollectEnv
from holdfast.envs.mettagrid.adapter import MettaGridWorld
from holdfast.envs.mettagrid.game import most_in_view, sight
from holdfast.errors import SettingsError


def test_random_play_collects_about_one_and_a_half_hearts(random_returns):
    returns = random_returns(CollectEnv(), num_envs=100, num_steps=160)
    assert returns.size == 1000
    assert abs(returns.mean() - 1.6) < 0.12
    assert returns.max() <= 8.0
    assert (returns == returns.round()).all()


def test_a_mine_pays_once_and_is_gone(random_returns):
    """With all the time in the world every heart is found, and none twice."""
    settings = CollectEnv(agents=3, size=5, mines=4, max_steps=600)
    returns = random_returns(settings, num_envs=4, num_steps=600).reshape(4, 3)
    np.testing.assert_array_equal(returns.sum(1), 4.0)


def test_random_play_earns_less_than_a_heart_in_the_arena(random_returns):
    returns = random_returns(ArenaEnv(desync=False), num_envs=4, num_steps=1000)
    assert returns.size == 96
    assert 0.4 < returns.mean() < 1.4


def test_the_way_to_a_heart_is_worth_a_heart():
    """mine, generator, altar: 0.1, then 0.3, then 1 in hand; nothing is gained or lost with full hands."""
    rewards = walk_the_chain(ArenaEnv(agents=1, size=8, max_steps=50, desync=False))
    np.testing.assert_allclose(rewards, [0.1, 0.0, 0.2, 0.1, 0.0, 0.7, 0.2, 0.7, 0.0], atol=1e-6)
    assert sum(rewards) == pytest.approx(2.0)
    plain = walk_the_chain(ArenaEnv(agents=1, size=8, max_steps=50, desync=False, shaped=False))
    np.testing.assert_array_equal(plain, [0, 0, 0, 0, 0, 1, 0, 1, 0])


def walk_the_chain(settings):
    """An agent between a mine (north), a generator (west) and an altar (south)."""
    world = MettaGridWorld(settings, range(1))
    cells = [["wall"] * 5 for _ in range(5)]
    cells[2][2], cells[1][2], cells[2][1], cells[3][2] = "agent.agent", "mine", "generator", "altar"
    world._games(0, 0, 0).map = lambda seed: cells
    world.reset(seed=0)
    mine, generator, altar = 1, 3, 2
    # ore, ore again, battery, ore, generator with full hands, heart, battery, heart, altar with nothing
    steps = [mine, mine, generator, mine, generator, altar, generator, altar, altar]
    return [float(world.step(np.array([step]))[1][0]) for step in steps]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (CollectEnv(size=5, agents=4, mines=6), ["env.agents=4", "env.mines=6", "9 free cells", "env.size=5"]),
        (
            ArenaEnv(size=8),
            ["env.agents=24", "env.mines=10", "env.generators=5", "env.altars=5", "36 free cells", "env.size=8"],
        ),
    ],
)
def test_a_map_too_small_is_refused(settings, words):
    with pytest.raises(SettingsError) as error:
        settings.describe()
    assert all(word in str(error.value) for word in words)


def test_a_full_map_fits():
    world = MettaGridWorld(CollectEnv(size=5, agents=4, mines=5), range(2))
    world.reset(seed=0)
    world.step(np.ones(8, np.int64))


def test_maps_follow_from_the_seed_and_hold_everything():
    for settings in (CollectEnv(), ArenaEnv()):
        game = settings.game()
        cells = game.map(3)
        assert cells == settings.game().map(3) != game.map(4)
        flat = [cell for row in cells for cell in row]
        assert flat.count("agent.agent") == settings.agents
        assert flat.count("mine") == settings.mines
        assert flat.count("wall") == 4 * settings.size - 4
        inside = np.array(cells)[1:-1, 1:-1]
        assert "wall" not in inside


def test_things_may_stand_anywhere_inside():
    game = CollectEnv().game()
    for thing in ("mine", "agent.agent"):
        times = np.sum([np.array(game.map(seed)) == thing for seed in range(200)], axis=0)
        assert (times[1:-1, 1:-1] > 0).all(), thing


@pytest.mark.parametrize(
    "settings",
    [
        CollectEnv(),
        CollectEnv(agents=8, mines=30, size=9, window=7),
        CollectEnv(agents=2, mines=8, size=7, window=15),
        CollectEnv(agents=3, mines=4, size=5, window=3),
    ],
)
def test_the_token_budget_of_collect_always_suffices(settings, play):
    seen = play(MettaGridWorld(settings, range(16)), 100)
    most = max(int((step[0][:, :, 0] != 0xFF).sum(1).max()) for step in seen)
    budget = settings.describe().obs.num_tokens
    assert most <= budget <= 1.5 * most


def test_the_default_arena_leaves_room(play):
    seen = play(MettaGridWorld(ArenaEnv(), range(2)), 300)
    most = max(int((step[0][:, :, 0] != 0xFF).sum(1).max()) for step in seen)
    assert 40 < most < 100 < ArenaEnv().describe().obs.num_tokens


@pytest.mark.parametrize(("window", "cells"), [(3, 5), (5, 21), (7, 37), (9, 57), (11, 89), (13, 121)])
def test_sight_is_mettagrids_disc(window, cells):
    assert len(sight(window)) == cells
    world = MettaGridWorld(ArenaEnv(agents=1, size=20, window=window, num_tokens=400, desync=False), range(1))
    walls = [["wall"] * 17 for _ in range(17)]
    walls[8][8] = "agent.agent"
    world._games(0, 0, 0).map = lambda seed: walls
    obs, _ = world.reset(seed=0)
    places = obs[0, obs[0, :, 0] < 0xFE, 0]
    assert {(int(p) >> 4, int(p) & 15) for p in places} == {
        (r + window // 2, c + window // 2) for r, c in sight(window)
    }


def test_most_in_view_by_hand():
    weights = np.array([[1, 0, 5], [0, 0, 0], [2, 0, 0]])
    standing = np.array([[0, 1, 0], [0, 1, 0], [0, 0, 1]], bool)
    assert most_in_view(weights, standing, 3) == 6  # from the top middle: 1 and 5
    assert most_in_view(weights, standing[::-1, ::-1] & ~standing, 3) == 2
