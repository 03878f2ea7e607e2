"""PettingZoo agents as slots: they leave one by one, wait, and start again together."""

from typing import Any

import numpy as np
import pytest
from mpe2 import simple_spread_v3
from toy_play import play

from holdfast.config import load_settings
from holdfast.envs import PettingZooEnv, World, episode_seed, make_world
from holdfast.envs.pettingzoo_world import PettingZooWorld
from holdfast.errors import HoldfastError, SettingsError


def party(num_envs: int = 2, **kwargs: object) -> PettingZooEnv:
    return PettingZooEnv(name="pettingzoo:toy_zoo", num_envs=num_envs, kwargs=kwargs)


def flags(got: dict[str, np.ndarray], slot: int) -> list[str]:
    """Per step: v(alid) or -, then T(erminated), C(ut) or nothing."""
    return [
        "-v"[int(valid)] + "T" * int(terminated) + "C" * int(truncated)
        for valid, terminated, truncated in zip(
            got["valid"][:, slot], got["terminated"][:, slot], got["truncated"][:, slot], strict=True
        )
    ]


def test_agents_leave_one_by_one_and_start_together():
    """Agents leave in steps 2, 4 and 3; episodes have 4 steps."""
    got = play(make_world(party()), 8)
    for env in (0, 3):
        assert flags(got, env + 0) == ["v", "vT", "-", "-C"] * 2
        assert flags(got, env + 1) == ["v", "v", "v", "vC"] * 2
        assert flags(got, env + 2) == ["v", "v", "vT", "-C"] * 2


def test_firsts_open_episodes_and_last_observations_are_kept():
    world = make_world(party())
    got = play(world, 12, seed=4)
    first = np.vstack([np.ones((1, 6), bool), (got["terminated"] | got["truncated"])[:-1]])
    episode, step, number, draw = np.moveaxis(got["before"], -1, 0)
    valid = got["valid"]
    assert np.array_equal(first[valid], step[valid] == 0)
    assert np.array_equal(number, np.tile([0, 1, 2, 0, 1, 2], (12, 1)))
    for env in range(2):
        for k in range(3):
            expected = np.random.default_rng(episode_seed(4, env, k)).integers(1000)
            rows = valid & (episode == k)
            assert (draw[:, 3 * env : 3 * env + 3][rows[:, 3 * env : 3 * env + 3]] == expected).all()
    ended = (got["terminated"] | got["truncated"]) & valid
    assert sorted({tuple(last[:3].tolist()) for last in got["final_obs"][:4][ended[:4]]}) == [
        (0, 2, 0),
        (0, 3, 2),
        (0, 4, 1),
    ]


def test_rewards_belong_to_those_who_acted():
    got = play(make_world(party()), 8)
    step = np.tile([1, 2, 3, 4], 2)[:, None]
    assert np.array_equal(got["rewards"], np.where(got["valid"], got["actions"] + step, 0))


def test_only_present_agents_act():
    world = PettingZooWorld(party(num_envs=1), range(1))
    play(world, 4)
    seen = world._envs[0].seen_actions
    assert [sorted(actions) for actions in seen] == [["ann", "bob", "cas"]] * 2 + [["bob", "cas"], ["bob"]]


def test_an_agent_that_comes_late_starts_with_a_first():
    """Bob comes in step 2: its row brings his first observation and is not his yet."""
    got = play(make_world(party(num_envs=1, leave=(3, 4), come=(0, 2))), 8)
    assert flags(got, 0) == ["v", "v", "vT", "-C"] * 2
    assert flags(got, 1) == ["-", "-C", "v", "vC"] * 2
    assert got["before"][2, 1, :3].tolist() == [0, 2, 1]


def test_waiting_slots_do_not_depend_on_what_was_played_before():
    world = make_world(party(come=(0, 2, 0)))
    assert play(world, 9)["before"].tolist()[0][1] == [0, 0, 0, 0]
    obs, _ = world.reset(seed=3)
    assert obs[1].tolist() == [0, 0, 0, 0]


def test_an_agent_that_vanishes_without_a_word_is_truncated():
    got = play(make_world(party(num_envs=1, leave=(1, 2), silent=True)), 4)
    assert flags(got, 0) == ["vC", "-C"] * 2
    assert flags(got, 1) == ["v", "vC"] * 2


def test_everybody_leaves_at_once_on_the_first_step():
    got = play(make_world(party(leave=(1, 1, 1))), 5)
    assert got["valid"].all()
    assert (got["terminated"] | got["truncated"]).all()
    assert (got["before"][..., 1] == 0).all()


def test_every_step_equals_the_bare_environment():
    settings = PettingZooEnv(name="pettingzoo:mpe2.simple_spread_v3", num_envs=2, kwargs={"N": 2, "max_cycles": 7})
    with make_world(settings) as world:
        got = play(world, 20, seed=9)
    for env_id in range(2):
        env: Any = simple_spread_v3.parallel_env(N=2, max_cycles=7)
        obs, _ = env.reset(seed=episode_seed(9, env_id, 0))
        episode = 0
        for t in range(20):
            slots = dict(zip(env.possible_agents, (2 * env_id, 2 * env_id + 1), strict=True))
            for agent, slot in slots.items():
                assert np.array_equal(got["before"][t, slot], obs[agent])
            after, rewards, terminated, truncated, _ = env.step({a: got["actions"][t, s] for a, s in slots.items()})
            for agent, slot in slots.items():
                assert got["rewards"][t, slot] == np.float32(rewards[agent])
                assert got["terminated"][t, slot] == terminated[agent]
                assert got["truncated"][t, slot] == truncated[agent]
                if truncated[agent]:
                    assert np.array_equal(got["final_obs"][t, slot], after[agent])
            obs = after
            if not env.agents:
                episode += 1
                obs, _ = env.reset(seed=episode_seed(9, env_id, episode))
        assert episode == 2
    assert got["valid"].all()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raise", "raised RuntimeError: the party is over in step()"),
        ("forget", "returned no observation for 'ann', which acted, from step()"),
    ],
)
def test_faults_are_told_with_their_origin(fault: str, words: str):
    world: World = make_world(party(fault=fault), env_ids=range(2, 4))
    world.reset(seed=0)
    with pytest.raises(HoldfastError) as caught:
        world.step(np.zeros(6, int))
    assert f"pettingzoo:toy_zoo: environment 2 (slots 6 to 8) {words}" in str(caught.value)


def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import not_here_either.part\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module, package in {"not_here.simple_spread_v3": "not_here", "needs_more": "not_here_either"}.items():
        with pytest.raises(SettingsError, match=f"pip install {package}$"):
            load_settings([f"env=pettingzoo:{module}"]).env.describe()
