"""Gymnasium environments as slots: same-step reset, seeds per episode, and what goes wrong in them."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from toy_play import actions_at, play

from holdfast.envs import GymEnv, episode_seed, make_world
from holdfast.envs.gymnasium_world import GymWorld
from holdfast.errors import HoldfastError, NonFiniteError
from holdfast.spec import BoxObs, DiscreteActions, DiscreteObs


def toy(name: str, num_envs: int = 3, **kwargs: object) -> GymEnv:
    return GymEnv(name=f"gym:toy_gym:{name}", num_envs=num_envs, kwargs=kwargs)


def test_every_step_equals_the_bare_environment():
    world = make_world(GymEnv(name="gym:CartPole-v1", num_envs=4))
    assert world.world_spec.obs == BoxObs((4,), "float32")
    assert world.world_spec.actions == DiscreteActions(("0", "1"))
    got = play(world, 150, seed=11)
    for slot in range(4):
        env = gymnasium.make("CartPole-v1")
        episode = 0
        obs, _ = env.reset(seed=episode_seed(11, slot, 0))
        for t in range(150):
            assert np.array_equal(got["before"][t, slot], obs)
            obs, reward, terminated, truncated, _ = env.step(got["actions"][t, slot])
            flags = got["terminated"][t, slot], got["truncated"][t, slot]
            assert (got["rewards"][t, slot], *flags) == (reward, terminated, truncated)
            if terminated or truncated:
                assert np.array_equal(got["final_obs"][t, slot], obs)
                episode += 1
                obs, _ = env.reset(seed=episode_seed(11, slot, episode))
            assert np.array_equal(got["after"][t, slot], obs)
        assert episode > 2
    assert got["valid"].all()


def test_episodes_in_one_environment_equal_fresh_environments():
    """Guarantee 8: episode k of environment i is the same whatever was played before it."""
    with make_world(toy("Dice-v0", num_envs=2)) as world:
        obs, _ = world.reset(seed=5)
        episodes = [[[obs[slot].copy()]] for slot in range(2)]
        steps = np.zeros(2, int)
        while min(len(slot) for slot in episodes) < 6:
            obs, rewards, terminated, truncated, info = world.step(actions_at(world, steps))
            steps += 1
            for slot in range(2):
                ended = terminated[slot] or truncated[slot]
                last = info["final_obs"][slot] if ended else obs[slot]
                episodes[slot][-1] += [rewards[slot], last.copy()]
                if ended:
                    episodes[slot].append([obs[slot].copy()])
                    steps[slot] = 0  # so every episode gets the same actions
        for slot in range(2):
            for number, lived in enumerate(episodes[slot][:6]):
                env = gymnasium.make("toy_gym:Dice-v0")
                first, _ = env.reset(seed=episode_seed(5, slot, number))
                fresh, step = [first], 0
                while len(fresh) < len(lived):
                    counts = np.full(2, step)
                    after, reward, *_ = env.step(actions_at(world, counts)[slot])
                    fresh += [np.float32(reward), after]
                    step += 1
                assert all(np.array_equal(a, b) for a, b in zip(lived, fresh, strict=True))


def test_reset_starts_from_episode_zero_again():
    with make_world(toy("Dice-v0")) as world:
        first = play(world, 30, seed=1)
        again = play(world, 30, seed=1)
        other = play(world, 30, seed=2)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["before"], other["before"])


def test_seeds_follow_environment_numbers():
    with (
        make_world(toy("Dice-v0", num_envs=5)) as whole,
        make_world(toy("Dice-v0"), env_ids=range(3, 5)) as part,
    ):
        all_slots, two_slots = play(whole, 40), play(part, 40)
    for name, values in two_slots.items():
        assert np.array_equal(all_slots[name][:, 3:], values), name


def test_a_reused_observation_array_is_copied_in_time():
    """Count hands out one array: the last observation must survive the reset that overwrites it."""
    with make_world(toy("Count-v0", num_envs=1)) as world:
        world.reset(seed=0)
        world.step(np.array([2]))
        obs, reward, terminated, truncated, info = world.step(np.array([2]))
    assert info["final_obs"].tolist() == [[0, 2, 4]]
    assert obs.tolist() == [[1, 0, 0]]
    assert (reward[0], terminated[0], truncated[0]) == (22, True, False)


def test_time_limit_truncates_and_restarts():
    with make_world(toy("Short-v0")) as world:
        got = play(world, 12)
    assert not got["terminated"].any()
    assert got["truncated"].all(1).tolist() == [False, False, False, True] * 3


def test_time_limit_can_be_set():
    with make_world(toy("Endless-v0", max_episode_steps=2)) as world:
        assert play(world, 4)["truncated"].all(1).tolist() == [False, True] * 2


def test_environments_that_never_end_or_end_at_once():
    with make_world(toy("Endless-v0")) as endless, make_world(toy("OneStep-v0")) as one_step:
        assert not (play(endless, 50)["terminated"].any())
        got = play(one_step, 20)
    assert got["terminated"].all()
    assert (got["final_obs"] == -1).all()
    assert (got["before"] >= 0).all()
    assert len(np.unique(got["before"][:, :, 0])) == 60  # every episode has a first observation of its own


def test_hide_leaves_entries_out():
    with make_world(GymEnv(name="gym:CartPole-v1", num_envs=3, hide=[1, 3])) as blind:
        assert blind.world_spec.obs == BoxObs((2,), "float32")
        got = play(blind, 60)
    with make_world(GymEnv(name="gym:CartPole-v1", num_envs=3)) as seeing:
        full = play(seeing, 60)
    for name in ("before", "after", "final_obs"):
        assert np.array_equal(got[name], full[name][..., [0, 2]])


def test_discrete_observations_of_a_real_environment():
    with make_world(GymEnv(name="gym:FrozenLake-v1", num_envs=2)) as world:
        assert world.world_spec.obs == DiscreteObs(16)
        obs, _ = world.reset(seed=0)
        assert obs.dtype == np.int64
        assert obs.shape == (2,)
        assert play(world, 10)["after"].shape == (10, 2)


def test_continuous_actions_are_clipped_and_shaped():
    space = spaces.Box(-1, np.array([[1.0], [0.5]]), (2, 1), np.float64)
    world = GymWorld(toy("Mirror-v0", num_envs=1, action_space=space), range(1))
    world.reset(seed=0)
    world.step(np.array([[-7.0, 3.0]], np.float32))
    (action,) = world._envs[0].unwrapped.actions  # pyright: ignore[reportAttributeAccessIssue]
    assert action.dtype == np.float64
    assert action.tolist() == [[-1], [0.5]]


def test_discrete_actions_count_from_the_start_of_the_space():
    space = spaces.Discrete(3, start=1)
    world = GymWorld(toy("Mirror-v0", num_envs=2, action_space=space), range(2))
    world.reset(seed=0)
    world.step(np.array([0, 2]))
    actions = [env.unwrapped.actions for env in world._envs]  # pyright: ignore[reportAttributeAccessIssue]
    assert actions == [[1], [3]]
    assert all(space.contains(action) for (action,) in actions)


def test_dict_observations():
    space = spaces.Dict({"b": spaces.Box(0, 1, (2, 2)), "a": spaces.Box(0, 9, (), np.int64)})
    kwargs = {"action_space": spaces.Discrete(2), "observation_space": space}
    with make_world(toy("Mirror-v0", num_envs=2, **kwargs)) as world:
        obs, _ = world.reset(seed=0)
        space.seed(episode_seed(0, 1, 0))
        expected = space.sample()
    assert obs.shape == (2, 5)
    assert obs[1].tolist() == [expected["a"], *expected["b"].ravel()]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("shape", ["returned an observation of shape (1,)", "(2,)", "step()"]),
        ("dtype", ["returned an observation of dtype <U1", "step()"]),
        ("reward", ["returned reward [1.0, 2.0]", "step()"]),
        ("raise", ["raised ValueError: the physics exploded in step()", "in step, toy_gym.py line"]),
        ("sys.exit", ["raised SystemExit: 5 in step()"]),
        ("reset", ["raised KeyError: 'level 2' in reset()"]),
        ("old step", ["returned 4 values instead of obs, reward, terminated, truncated, info from step()"]),
    ],
)
def test_a_faulty_step_is_told_with_its_origin(fault: str, words: list[str]):
    with make_world(toy("Odd-v0", fault=fault), env_ids=range(4, 7)) as world:
        world.reset(seed=0)
        world.step(np.array([0, 0, 0]))
        with pytest.raises(HoldfastError) as caught:
            world.step(np.array([0, 3, 0]))
    words = ["gym:toy_gym:Odd-v0", "environment 5 (slot 5)", *words]
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_faulty_reset_is_told_with_its_origin():
    with make_world(toy("Odd-v0", fault="old reset")) as world, pytest.raises(HoldfastError) as caught:
        world.reset(seed=0)
    assert "environment 0 (slot 0) returned an observation of shape (1,)" in str(caught.value)
    assert "reset()" in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan", ["observation of slot 5", "environment 5", "nan"]),
        ("inf reward", ["reward of slot 5", "inf"]),
        ("nan at the end", ["final observation of slot 5", "nan"]),
    ],
)
def test_nan_stops_at_its_source(fault: str, words: list[str]):
    with make_world(toy("Odd-v0", fault=fault), env_ids=range(4, 7)) as world:
        world.reset(seed=0)
        world.step(np.array([0, 0, 0]))
        with pytest.raises(NonFiniteError) as caught:
            world.step(np.array([0, 3, 0]))
    assert all(word in str(caught.value) for word in [*words, "gym:toy_gym:Odd-v0", "step 2"]), caught.value


def test_an_environment_may_print(capsys: pytest.CaptureFixture[str]):
    with make_world(toy("Odd-v0", fault="print")) as world:
        world.reset(seed=0)
        world.step(np.array([3, 0, 0]))
    assert "hello" in capsys.readouterr().out


def test_closing_closes_the_environments_once():
    world = GymWorld(toy("Dice-v0"), range(3))
    closed = []
    for env in world._envs:
        env.unwrapped.close = lambda env=env: closed.append(env)
    world.close()
    world.close()
    assert len(closed) == 3
