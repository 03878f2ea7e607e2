"""The world contract, held by many simulations in one set of arrays."""

import importlib
import logging
import subprocess
import sys
import textwrap
from itertools import pairwise

import numpy as np
import psutil
import pytest

from holdfast.envs import ArenaEnv, CollectEnv, MemoryEnv
from holdfast.envs.mettagrid import api
from holdfast.envs.mettagrid.adapter import MettaGridWorld
from holdfast.envs.world import Buffers, episode_seed
from holdfast.errors import HoldfastError


def rows_equal(left, right):
    return all(
        np.array_equal(a, b)
        for ours, theirs in zip(left, right, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def episodes(length, num_steps):
    """(episode, its first step, steps of it that are played) for episodes of equal length."""
    return [(start // length, start, min(length, num_steps - start)) for start in range(0, num_steps, length)]


def test_every_step_is_what_mettagrid_itself_shows(settings, simulate, play):
    """Reused configuration, shared arrays, same-step reset: none of it may change an observation or a reward.

    The last step of an episode is compared with final_obs, and the observation handed out with it with the
    first one of a new simulation.
    """
    world = MettaGridWorld(settings, range(4, 6))
    agents = world.world_spec.agents_per_env
    length = simulate(settings, 0).config.game.max_steps
    num_steps = 2 * length + 3
    seen = play(world, num_steps, seed=9)

    for i, env in enumerate(world.env_ids):
        rows = slice(i * agents, (i + 1) * agents)
        rng = np.random.default_rng([77, env])
        for episode, start, steps in episodes(length, num_steps):
            simulation = simulate(settings, episode_seed(9, env, episode))
            core = simulation._c_sim
            np.testing.assert_array_equal(seen[start][0][rows], core.observations())
            for t in range(start + 1, start + steps + 1):
                core.actions()[:] = rng.integers(5, size=agents)
                simulation.step()
                obs, rewards, terminated, truncated, final = (part[rows] for part in seen[t])
                np.testing.assert_array_equal(final if t == start + length else obs, core.observations())
                np.testing.assert_array_equal(rewards, core.rewards())
                np.testing.assert_array_equal(terminated, core.terminals())
                np.testing.assert_array_equal(truncated, core.truncations())


def test_maps_and_sights_differ_between_environments_and_episodes(settings, simulate, play):
    length = simulate(settings, 0).config.game.max_steps
    seen = play(MettaGridWorld(settings, range(8)), 3 * length)
    firsts = [seen[i * length][0].reshape(8, -1) for i in range(3)]
    different = {row.tobytes() for first in firsts for row in first}
    # three mazes have eight layouts, so memory repeats itself; anything stuck would give one or eight
    assert len(different) > 8 or settings.name == "memory"
    assert any(not np.array_equal(a, b) for a, b in pairwise(firsts))


def test_same_seed_same_world_other_seed_another(settings, play):
    first = play(MettaGridWorld(settings, range(3)), 50)
    assert rows_equal(first, play(MettaGridWorld(settings, range(3)), 50))
    assert not rows_equal(first, play(MettaGridWorld(settings, range(3)), 50, seed=4))


def test_reset_starts_over(settings, play):
    world = MettaGridWorld(settings, range(3))
    assert rows_equal(play(world, 45), play(world, 45))


@pytest.mark.parametrize("desync", [False, True])
def test_rows_do_not_depend_on_how_environments_are_split(desync, play):
    settings = CollectEnv(max_steps=11, desync=desync)
    whole = play(MettaGridWorld(settings, range(4)), 40)
    parts = [play(MettaGridWorld(settings, ids), 40) for ids in (range(2), range(2, 4))]
    joined = [
        tuple(np.concatenate(halves) for halves in zip(*steps, strict=True)) for steps in zip(*parts, strict=True)
    ]
    assert rows_equal(whole, joined)


def test_buffers_are_written_in_place_and_only_there(settings, play):
    """The arrays of a world may be a part of larger ones (shared memory): rows beside it stay untouched."""
    spec = settings.describe()
    agents = spec.agents_per_env
    large = Buffers.allocate(spec, 4 * agents)
    for name in Buffers.layout(spec):
        getattr(large, name)[:] = 1
    inner = Buffers(**{name: getattr(large, name)[agents : 3 * agents] for name in Buffers.layout(spec)})
    seen = play(MettaGridWorld(settings, range(2), inner), 45)
    assert rows_equal(seen, play(MettaGridWorld(settings, range(2)), 45))
    np.testing.assert_array_equal(large.obs[agents : 3 * agents], seen[-1][0])
    for name in Buffers.layout(spec):
        outside = np.concatenate([getattr(large, name)[:agents], getattr(large, name)[3 * agents :]])
        assert (outside == 1).all(), name


def test_arrays_c_would_copy_are_refused():
    spec = MemoryEnv(rooms=2).describe()
    buffers = Buffers.allocate(spec, 4)
    buffers.obs = np.zeros((8, *spec.obs.shape), np.uint8)[::2]
    with pytest.raises(ValueError, match="contiguous"):
        MettaGridWorld(MemoryEnv(rooms=2), range(2), buffers)


def test_memory_ends_and_the_others_are_cut(settings, play):
    ends = [step[2:4] for step in play(MettaGridWorld(settings, range(2)), 90)[1:]]
    terminated, truncated = (np.stack(flags) for flags in zip(*ends, strict=True))
    steps = np.flatnonzero((terminated | truncated).any(1))
    length = steps[0] + 1
    np.testing.assert_array_equal(steps + 1, np.arange(length, 91, length))
    assert (terminated if settings.name == "memory" else truncated)[steps].all()
    assert not (truncated if settings.name == "memory" else terminated).any()


def test_desync_cuts_only_the_first_episode_and_by_seed(play):
    settings = CollectEnv(agents=2, max_steps=20, desync=True)
    steps = play(MettaGridWorld(settings, range(12)), 70)[1:]
    ended = np.stack([step[3] for step in steps])
    assert not np.stack([step[2] for step in steps]).any()
    firsts = []
    for env in range(12):
        rows = ended[:, 2 * env : 2 * env + 2]
        np.testing.assert_array_equal(rows[:, 0], rows[:, 1])
        at = np.flatnonzero(rows[:, 0]) + 1
        assert 1 <= at[0] <= 20
        assert (np.diff(at) == 20).all()
        assert len(at) == (70 - at[0]) // 20 + 1
        firsts.append(int(at[0]))
    assert len(set(firsts)) > 4
    plain = play(MettaGridWorld(settings.model_copy(update={"desync": False}), range(12)), 70)
    cut = play(MettaGridWorld(settings, range(12)), 70)
    at = min(firsts)
    assert rows_equal(plain[:at], cut[:at]), "before the cut, cutting changes nothing"


def test_an_observation_beyond_the_budget_is_explained():
    world = MettaGridWorld(ArenaEnv(num_tokens=8), range(1))
    with pytest.raises(
        HoldfastError,
        match=r"arena: agent \d+ of environment 0 has \d+ observation tokens at step 0, more than "
        r"env.num_tokens=8.\nSet env.num_tokens=50 or more",
    ):
        world.reset(seed=0)

    # five tokens of its own and four neighbours: enough until it carries something as well
    settings = ArenaEnv(agents=1, size=8, window=3, num_tokens=9, mines=6, generators=6, altars=6)
    world = MettaGridWorld(settings, range(3, 5))
    world.reset(seed=2)
    rng = np.random.default_rng(0)

    def play_on():
        for _ in range(1000):
            world.step(rng.integers(5, size=world.num_slots))

    with pytest.raises(HoldfastError, match=r"environment [34] has 1\d observation tokens at step [1-9]\d*, more"):
        play_on()


def test_step_without_reset_or_after_close_is_refused():
    world = MettaGridWorld(MemoryEnv(rooms=1), range(1))
    with pytest.raises(RuntimeError, match="reset"):
        world.step(np.zeros(1, np.int64))
    world.reset(seed=0)
    world.step(np.zeros(1, np.int64))
    world.close()
    with pytest.raises(RuntimeError, match="close"):
        world.step(np.zeros(1, np.int64))


def test_memory_does_not_grow_with_episodes():
    world = MettaGridWorld(MemoryEnv(rooms=4, corridor=1), range(32))
    actions = np.random.default_rng(0).integers(5, size=world.num_slots)
    world.reset(seed=0)

    def resident_after(num_steps):
        for _ in range(num_steps):
            world.step(actions)
        return psutil.Process().memory_info().rss

    before = resident_after(40)
    grown = resident_after(400) - before  # 3,200 episodes
    assert grown < 1 << 20, f"{grown / 3200:.0f} bytes per episode"


def test_importing_leaves_logging_alone_and_envs_does_not_import_mettagrid():
    script = """
        import logging, sys
        import holdfast.envs
        from holdfast.config import load_settings
        load_settings([])
        assert not any(name.split(".")[0] == "mettagrid" for name in sys.modules)
        logging.getLogger().setLevel(logging.ERROR)
        import holdfast.envs.mettagrid.api
        root = logging.getLogger()
        assert root.level == logging.ERROR and root.handlers == [], (root.level, root.handlers)
        assert "torch" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_mettagrid_one_line_says_so():
    script = """
        import sys
        sys.modules["mettagrid"] = None
        from holdfast.errors import SettingsError
        try:
            import holdfast.envs.mettagrid.api
        except SettingsError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "need mettagrid 0.26.22" in done.stdout


def test_root_level_is_restored_in_this_process_too():
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    importlib.reload(api)
    assert (root.level, root.handlers[:]) == before
