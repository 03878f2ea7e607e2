"""memory: solved with memory, half solved without, and nothing but the first cue tells the doors apart."""

# pyright: reportAttributeAccessIssue=false
# Settings and specs are unions; each test knows which member it has.

import numpy as np
import pytest

from holdfast.envs import MemoryEnv
from holdfast.envs.mettagrid.adapter import MettaGridWorld
from holdfast.envs.worlds.memory import episode_length

NOOP, NORTH, SOUTH, WEST, EAST = range(5)
UP, DOWN = 1, 2


def feature(name):
    return next(f.id for f in MemoryEnv().describe().obs.features if f.name == name)


def cues(obs):
    """The vibe each slot sees [B], 0 where it sees none."""
    vibes = np.where(obs[:, :, 1] == feature("vibe"), obs[:, :, 2], 0)
    assert ((vibes > 0).sum(1) <= 1).all(), "an agent sees one cue, its own"
    return vibes.max(1)


def play(settings, num_envs, choose, num_episodes=1, spare=0):
    """Walk to the doors, wait there for `spare` steps, move as choose(first obs) says. Returns [B]."""
    world = MettaGridWorld(settings, range(num_envs))
    obs, _ = world.reset(seed=11)
    length = episode_length(settings.corridor)
    returns = []
    for _ in range(num_episodes):
        doors = choose(obs)
        total = np.zeros(world.num_slots)
        for t in range(length):
            go = t < settings.corridor
            wait = t < settings.corridor + spare
            actions = np.full(world.num_slots, EAST if go else NOOP) if wait else doors
            obs, rewards, terminated, _, _ = world.step(actions)
            total += rewards
            assert terminated.all() == (t + 1 == length)
        returns.append(total)
    return np.concatenate(returns)


def by_cue(obs):
    cue = cues(obs)
    assert (cue > 0).all(), "every first observation of every episode shows a cue"
    return np.where(cue == UP, NORTH, SOUTH)


@pytest.mark.parametrize("corridor", [1, 3, 8, 20])
@pytest.mark.parametrize("window", [3, 7, 15])
def test_the_cue_solves_it(corridor, window):
    settings = MemoryEnv(rooms=5, corridor=corridor, window=window)
    assert (play(settings, 2, by_cue, num_episodes=3) == 1.0).all()
    assert (play(settings, 2, by_cue, spare=2) == 1.0).all(), "time to spare"


def test_the_other_door_pays_nothing_ever():
    wrong = play(MemoryEnv(), 4, lambda obs: np.where(by_cue(obs) == NORTH, SOUTH, NORTH))
    assert (wrong == 0.0).all()


def test_one_choice_per_episode():
    """Wrong door first, then the right one until the end: nothing."""
    settings = MemoryEnv(rooms=8)
    world = MettaGridWorld(settings, range(2))
    right = by_cue(world.reset(seed=3)[0])
    total = 0.0
    for t in range(episode_length(settings.corridor)):
        wrong_first = np.where(right == NORTH, SOUTH, NORTH) if t == settings.corridor else right
        _, rewards, _, _, _ = world.step(np.full_like(right, EAST) if t < settings.corridor else wrong_first)
        total += rewards.sum()
    assert total == 0.0


def test_without_the_cue_half_is_all_there_is():
    returns = play(MemoryEnv(), 64, lambda obs: np.full(len(obs), NORTH), num_episodes=4)
    assert returns.size == 2048
    assert abs(returns.mean() - 0.5) < 0.05


def test_random_play_rarely_finds_a_door(random_returns):
    returns = random_returns(MemoryEnv(), num_envs=32, num_steps=10 * episode_length(3))
    assert returns.size == 2560
    assert abs(returns.mean() - 0.05) < 0.015


@pytest.mark.parametrize("window", [3, 11])
def test_the_cue_shows_at_the_first_observation_only(window):
    world = MettaGridWorld(MemoryEnv(rooms=4, window=window), range(4))
    obs, _ = world.reset(seed=0)
    assert (cues(obs) > 0).all()
    rng = np.random.default_rng(0)
    for _ in range(60):
        obs, _, terminated, _, info = world.step(rng.integers(4, size=16))
        if terminated.any():
            assert (cues(obs) > 0).all()
            assert (cues(info["final_obs"]) == 0).all()
        else:
            assert (cues(obs) == 0).all()


@pytest.mark.parametrize("window", [3, 9, 15])
def test_after_the_cue_nothing_tells_the_mazes_apart(window):
    """Same actions up to the choice in mazes of both kinds: the same tokens, doors included."""
    settings = MemoryEnv(rooms=6, window=window)
    world = MettaGridWorld(settings, range(1))
    obs, _ = world.reset(seed=1)
    kinds = cues(obs)
    assert set(kinds.tolist()) == {UP, DOWN}

    def nameless(obs):
        return np.where((obs[:, :, 1] == feature("agent_id"))[:, :, None], 0, obs)

    moves = [WEST, NOOP, EAST, NORTH, EAST, EAST, EAST, NOOP]
    for move in moves:
        obs, _, terminated, _, _ = world.step(np.full(6, move))
        assert not terminated.any()
        assert (nameless(obs) == nameless(obs)[0]).all()
    door = 3  # place of "type:door" among the sorted tags
    tags = obs[0][obs[0][:, 1] == feature("tag")]
    assert (tags[:, 2] == door).sum() == 2, "both doors are in sight"


def test_the_cue_cannot_be_kept_in_the_world():
    """Who waits a step where the cue is up, and not where it is down, still sees the same at the doors."""
    settings = MemoryEnv(rooms=6, corridor=3)
    world = MettaGridWorld(settings, range(1))
    obs, _ = world.reset(seed=1)
    up = cues(obs) == UP
    seen = {}
    for t in range(5):
        early, late = t < 3, 1 <= t < 4  # the first go east at once, the others a step later
        obs, *_ = world.step(np.where(up, EAST if late else NOOP, EAST if early else NOOP))
        arrived = np.flatnonzero(up if t == 3 else ~up if t == 2 else np.zeros(6, bool))
        for room in arrived:
            seen.setdefault(bool(up[room]), set()).add(
                tuple(sorted(map(tuple, obs[room][obs[room][:, 1] != feature("agent_id")].tolist())))
            )
    assert seen[True] == seen[False]
    assert len(seen[True]) == 1


def test_both_cues_occur_in_every_room():
    world = MettaGridWorld(MemoryEnv(), range(32))
    obs, _ = world.reset(seed=0)
    up = (cues(obs) == UP).reshape(32, 8).mean(0)
    assert ((up > 0.2) & (up < 0.8)).all()


@pytest.mark.parametrize("window", [3, 5, 9, 15])
@pytest.mark.parametrize("corridor", [1, 4])
def test_the_token_budget_is_exactly_what_is_needed(window, corridor):
    settings = MemoryEnv(rooms=4, corridor=corridor, window=window)
    world = MettaGridWorld(settings, range(1))
    obs, _ = world.reset(seed=0)
    right = by_cue(obs)
    most = 0
    for t in range(episode_length(corridor)):
        used = (obs[:, :, 0] != 0xFF).sum(1)
        most = max(most, int(used.max()))
        action = np.full_like(right, EAST) if t < corridor else right if t == corridor else np.full_like(right, WEST)
        obs, *_ = world.step(action)
    assert most == settings.describe().obs.num_tokens
    assert MemoryEnv().describe().obs.num_tokens == 8


def test_rooms_are_out_of_each_others_sight():
    settings = MemoryEnv(rooms=5, corridor=2, window=15)
    world = MettaGridWorld(settings, range(1))
    rng = np.random.default_rng(0)
    obs, _ = world.reset(seed=0)
    for _ in range(50):
        agents = (obs[:, :, 1] == feature("agent_id")).sum(1)
        assert (agents == 1).all()
        obs, *_ = world.step(rng.integers(5, size=5))
