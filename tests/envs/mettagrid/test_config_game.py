"""A MettaGrid configuration of the user's own, in a file, as a world."""

# pyright: reportAttributeAccessIssue=false
# Specs are unions; each test knows which member it has.

from pathlib import Path
from weakref import WeakSet

import numpy as np
import pytest
import torch
from mettagrid.config.mettagrid_config import MettaGridConfig
from mettagrid.map_builder.ascii import AsciiMapBuilder
from mettagrid.simulator import Simulator

from holdfast.config import load_settings
from holdfast.envs import ArenaEnv, make_world
from holdfast.envs.mettagrid import adapter
from holdfast.envs.mettagrid.adapter import MettaGridWorld
from holdfast.envs.mettagrid.config_game import ConfigGames
from holdfast.envs.replayable import why_not_replayable
from holdfast.envs.world import episode_seed
from holdfast.envs.worlds.mettagrid import READY, MettaGridConfigEnv
from holdfast.errors import SettingsError
from holdfast.policies import GRID_AGENTS
from holdfast.policies.registry import make_policy
from holdfast.spec import WorldSpec, keys
from holdfast.trainer import train
from support.runs import digest

FILE = Path(__file__).parents[1] / "toys" / "toy_metta.py"
SMALL = ["env.num_envs=2", "trainer.horizon=8", "trainer.batch_size=48", "trainer.minibatch_size=24", "audit=off"]
SMALL += ["trainer.update_epochs=1", "trainer.schedule.lr.kind=constant"]


def own(name: str, **changes) -> MettaGridConfigEnv:
    return MettaGridConfigEnv(name=f"mettagrid:{FILE}:{name}", **changes)


def play(world: MettaGridWorld, num_steps: int, seed: int = 3) -> list[np.ndarray]:
    """All outputs under random actions that depend on the number of the environment only."""
    agents, num_actions = world.world_spec.agents_per_env, len(world.world_spec.actions.names)
    rngs = [np.random.default_rng([7, env]) for env in world.env_ids]
    seen = [world.reset(seed=seed)[0].copy()]
    for _ in range(num_steps):
        world.step(np.concatenate([rng.integers(num_actions, size=agents) for rng in rngs]))
        b = world.buffers
        seen += [x.copy() for x in (b.obs, b.rewards, b.terminated, b.truncated)]
    return seen


def same(first, second) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def mettagrids_own(game, seed: int):
    """The same episode as MettaGrid's own simulator runs it."""
    config = ConfigGames(game)(0, 0, seed)
    cells = config.map(seed)
    names = sorted({cell for row in cells for cell in row})
    symbols = {chr(ord("A") + i): name for i, name in enumerate(names)}
    letter = {name: char for char, name in symbols.items()}
    rules = config.config.model_copy(deep=True)
    rules.map_builder = AsciiMapBuilder.Config(
        map_data=[[letter[cell] for cell in row] for row in cells], char_to_map_name=symbols
    )
    return Simulator().new_simulation(MettaGridConfig(game=rules), seed)


@pytest.mark.parametrize("name", ["config", "rung", "teams", "nested"])
def test_every_step_is_what_mettagrid_itself_shows(name):
    """Actions by name, vibes among them, episodes that end by a statistic, and MettaGrid's statistics of the episode."""
    settings = own(name)
    world = MettaGridWorld(settings, range(1))
    agents, actions = world.world_spec.agents_per_env, world.world_spec.actions.names
    rng = np.random.default_rng(1)
    world.reset(seed=5)
    vibes_seen = ends = 0
    for episode in range(3):
        simulation = mettagrids_own(settings, episode_seed(5, 0, episode))
        core = simulation._c_sim
        np.testing.assert_array_equal(world.buffers.obs, core.observations())
        while not simulation.is_done():
            chosen = rng.integers(len(actions), size=agents)
            for i, action in enumerate(chosen):
                simulation.agent(i).set_action(actions[action])
            simulation.step()
            obs, rewards, terminated, truncated, info = world.step(chosen)
            now = info["final_obs"] if simulation.is_done() else obs
            np.testing.assert_array_equal(now, core.observations())
            np.testing.assert_array_equal(rewards, core.rewards())
            np.testing.assert_array_equal(terminated, core.terminals())
            np.testing.assert_array_equal(truncated, core.truncations() & ~core.terminals())
            vibe = next(f.id for f in world.world_spec.obs.features if f.name == "vibe")
            vibes_seen += int((now[..., 1] == vibe).sum())
            assert bool(world.episode_infos) == simulation.is_done()
        ends += int(simulation.current_step < 25)
        (slot, numbers), stats = world.episode_infos[0], simulation.episode_stats
        assert slot == 0
        game = {f"game/{key}": value for key, value in stats["game"].items() if not key.startswith("tokens_")}
        assert game == {key: numbers[key] for key in game}
        names = {key for agent in stats["agent"] for key in agent}
        means = {f"agent/{key}": np.mean([agent.get(key, 0.0) for agent in stats["agent"]]) for key in names}
        assert {key: numbers[key] for key in numbers if key.startswith("agent/")} == pytest.approx(means)
        assert all(type(value) is float for value in numbers.values())
    assert vibes_seen > 20
    assert (ends > 0) == (name == "rung")


def test_tokens_have_described_features_categories_and_places():
    for name in ("config", "teams", "silent"):
        world = MettaGridWorld(own(name), range(3))
        by_id = {feature.id: feature for feature in world.world_spec.obs.features}
        tokens = np.concatenate([x.reshape(-1, 3) for x in play(world, 120) if x.dtype == np.uint8])
        tokens = tokens[tokens[:, 0] != 0xFF]
        assert set(tokens[:, 1].tolist()) <= by_id.keys()
        for id_ in set(tokens[:, 1].tolist()):
            values = tokens[tokens[:, 1] == id_][:, 2]
            assert not by_id[id_].categories or values.max() < len(by_id[id_].categories), by_id[id_].name
        places = tokens[tokens[:, 0] != 0xFE][:, 0]
        assert (places >> 4).max() == 4
        assert (places & 15).max() == 8


def test_names_and_scales_come_from_the_configuration():
    spec = own("config").describe()
    assert spec.agents_per_env == 3
    assert spec.obs.window == (5, 9)
    assert spec.obs.num_tokens == 90
    assert spec.actions.names[5:8] == ("move_northeast", "move_southwest", "change_vibe_default")
    features = {feature.name: feature for feature in spec.obs.features}
    assert features["tag"].categories == ("type:agent", "type:bell", "type:bush", "type:pot", "type:wall")
    assert features["vibe"].categories == ("default", "here", "there")
    assert features["last_action"].categories == spec.actions.names
    assert features["agent:group"].categories == ("all",)
    assert features["inv:tool"].normalization == 1.0, "at most one"
    assert features["inv:jam"].normalization == 3.0, "at most nine"
    assert features["inv:berry"].normalization == pytest.approx(255**0.5), "no limit"
    assert features["agent_id"].normalization == 2.0
    assert "goal" not in features
    assert WorldSpec.from_json(spec.to_json()) == spec
    groups = {f.name: f.categories for f in own("teams").describe().obs.features}["agent:group"]
    assert groups == ("team_4", "team_7")
    assert "vibe" not in {f.name for f in own("silent").describe().obs.features}


@pytest.mark.parametrize("name", ["config", "nested", "ascii_map", "staged"])
def test_an_episode_depends_on_seed_environment_and_number_only(name):
    settings = own(name)
    whole = play(MettaGridWorld(settings, range(4)), 40)
    assert same(whole, play(MettaGridWorld(settings, range(4)), 40))
    assert not same(whole, play(MettaGridWorld(settings, range(4)), 40, seed=4))
    halves = [play(MettaGridWorld(settings, ids), 40) for ids in (range(2), range(2, 4))]
    assert same(whole, [np.concatenate(pair) for pair in zip(*halves, strict=True)])
    assert why_not_replayable(settings, in_a_worker=False, worker_timeout=10.0) is None


def test_a_worker_process_loads_the_file_too():
    with MettaGridWorld(own("staged"), range(2)) as here, make_world(own("staged"), 1, range(2)) as there:
        np.testing.assert_array_equal(here.reset(seed=1)[0], there.reset(seed=1)[0])
        for _ in range(8):
            np.testing.assert_array_equal(here.step(here.buffers.actions)[0], there.step(there.buffers.actions)[0])


def test_maps_of_instances_and_seeds():
    game = ConfigGames(own("nested"))(0, 0, 0)
    cells = np.array(game.map(1))
    assert np.array_equal(cells, game.map(1))
    assert not np.array_equal(cells, game.map(2))
    rooms = {cells[r : r + 6, c : c + 6].tobytes() for r in range(cells.shape[0]) for c in range(cells.shape[1])}
    agents = np.argwhere(np.char.startswith(cells, "agent"))
    assert len(agents) == 4
    assert len({tuple(place % 13) for place in agents}) > 1, "the instances differ"
    assert len(rooms) > 4

    inner = game.config.map_builder.instance.instance
    inner.seed = 3  # the user wants the same room in every instance
    fixed = np.array(game.map(1))
    places = np.argwhere(np.char.startswith(fixed, "agent"))
    assert len({tuple(place - places[0]) for place in places}) == 4
    assert sum((fixed == "bush").ravel()) == 20
    assert np.array_equal(np.sort(fixed.ravel()), np.sort(np.array(game.map(2)).ravel()))

    one, shifted = ConfigGames(own("config"))(0, 0, 0), ConfigGames(own("config"))(0, 0, 0)
    before = one.map(5)
    shifted.config = shifted.config.model_copy(deep=True)
    shifted.config.map_builder.seed = 2
    assert shifted.map(5) == one.map(7), "a seed in the configuration is added to that of the episode"
    assert before == one.map(5), "building a map leaves the configuration alone"


def test_function_gets_what_it_asks_for():
    games = ConfigGames(own("staged", kwargs={"first": 4}))
    game = games(env=2, episode=3, seed=11)
    assert game.config.max_steps == 7
    assert sum(cell == "bush" for row in game.map(11) for cell in row) == 7
    same_game = ConfigGames(own("forgetful"))
    assert same_game(0, 0, 0) is same_game(1, 5, 9), "a function without seed, env and episode is called once"


def test_episode_lengths():
    world = MettaGridWorld(own("endless", desync=True), range(1))
    assert not any(x.any() for x in play(world, 200) if x.dtype == bool)
    assert world._games(0, 0, 0).config.agents == [], "the user's configuration is left alone"
    lengths = {}
    for desync in (True, False):
        flags = [x for x in play(MettaGridWorld(own("config", desync=desync), range(6)), 60) if x.dtype == bool]
        ended = np.stack(flags[0::2]) | np.stack(flags[1::2])
        lengths[desync] = [int(np.flatnonzero(row)[0]) + 1 for row in ended.T[::3]]
    assert lengths[False] == [25] * 6
    assert len(set(lengths[True])) > 3


def test_what_changes_between_episodes_must_not_change_the_world():
    world = MettaGridWorld(own("poorer"), range(1))
    play(world, 60)  # only limits, and so scales, differ
    with pytest.raises(SettingsError, match=r"episode 1 of environment 0 .*type:chest"):
        play(MettaGridWorld(own("grown"), range(1)), 60)


def test_a_function_that_is_not_deterministic_is_found():
    reason = why_not_replayable(own("forgetful_of_seed"), in_a_worker=False, worker_timeout=10.0)
    assert reason is not None
    assert "differ" in reason


def test_two_numberings_of_features_in_one_process_are_refused(monkeypatch):
    """MettaGrid has one id of last_action_move for all simulations of a process."""
    monkeypatch.setattr(adapter, "_open", WeakSet())
    with MettaGridWorld(ArenaEnv(agents=2), range(1)) as arena:
        MettaGridWorld(own("config"), range(1)).close()  # other resources and tags: no problem
        with pytest.raises(SettingsError, match=r"(?s)arena.*last_action_move.*Close"):
            MettaGridWorld(own("moved"), range(1))
        arena.reset(seed=0)
    moved = MettaGridWorld(own("moved"), range(1))
    feature = next(f.id for f in moved.world_spec.obs.features if f.name == "last_action_move")
    assert feature in moved.reset(seed=0)[0][..., 1]
    with pytest.raises(SettingsError, match="last_action_move"):
        MettaGridWorld(own("config"), range(1))
    moved.close()
    MettaGridWorld(own("config"), range(1)).close()


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("nothing", ["no nothing", "berries"]),
        ("number", ["type int", "MettaGridConfig"]),
        ("bare_game", ["type GameConfig", "MettaGridConfig(game=...)"]),
        ("raises", ["no bushes today", "toy_metta.py:"]),
        ("needs_one", ["num_agents", "greater than or equal to 1", "toy_metta.py:"]),
        ("windows", ["4 x 4", "odd"]),
        ("still", ["game.actions.move.enabled"]),
        ("crowded", ["observation tokens", "game.obs.num_tokens=50"]),
        ("lonely", ["3", "spawn points 1"]),
        ("unknown", ["dragon"]),
        ("many", ["features", "255", "game.resource_names"]),
    ],
)
def test_what_cannot_be_played_is_named_before_a_run_begins(name, parts, tmp_path):
    settings = load_settings(
        [f"env=mettagrid:{FILE}:{name}", *SMALL, "run=bad", f"runs_dir={tmp_path}", "progress=off"]
    )
    with pytest.raises(SettingsError) as caught:
        train(settings)
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert not (tmp_path / "bad").exists()


def test_arguments_that_do_not_fit(tmp_path):
    with pytest.raises(SettingsError, match=r"takes no arguments.*env\.kwargs"):
        own("config", kwargs={"bushes": 3}).describe()
    with pytest.raises(SettingsError, match=r"unexpected keyword argument 'frist'.*seed=.*frist=3"):
        own("staged", kwargs={"frist": 3}).describe()
    with pytest.raises(SettingsError, match="arena, empty_room, navigation"):
        MettaGridConfigEnv(name="mettagrid:nosuch").describe()
    with pytest.raises(SettingsError, match=r"no such file"):
        MettaGridConfigEnv(name=f"mettagrid:{tmp_path}/none.py:x").describe()


@pytest.mark.parametrize("name", READY)
def test_configurations_of_mettagrid_itself(name):
    with MettaGridWorld(MettaGridConfigEnv(name=f"mettagrid:{name}", kwargs={"num_agents": 2}), range(2)) as world:
        assert world.world_spec.agents_per_env == 2
        play(world, 5)


@pytest.mark.parametrize("agent", GRID_AGENTS)
def test_all_agents_play_it_and_those_of_other_worlds_move_in(agent):
    spec, arena = own("config").describe(), ArenaEnv().describe()
    with MettaGridWorld(own("config"), range(2)) as world:
        obs = torch.from_numpy(world.reset(seed=0)[0].copy())[None]
    N = obs.shape[1]
    inputs = {
        keys.OBS: obs,
        keys.REWARDS: torch.zeros(1, N),
        keys.DONES: torch.ones(1, N),
        keys.TRUNCATEDS: torch.zeros(1, N),
    }
    for key in ("agent", "py_agent"):
        settings = load_settings([f"{key}={agent}", "env=arena"]).policy
        policy = make_policy(settings, spec)
        actions = policy.act(inputs, policy.initial_state(N))[0]
        assert actions is not None
        moved = make_policy(settings, arena)
        new = moved.initialize_to_world(spec)
        assert {"tag=type:bush", "inv:berry", "action change_vibe_here"} <= set(new)
        moved.act(inputs, moved.initial_state(N))


def test_a_stopped_run_continues_exactly(tmp_path):
    words = [f"env=mettagrid:{FILE}:staged", *SMALL, f"runs_dir={tmp_path}", "progress=off", "py_agent=fast"]
    train(load_settings([*words, "trainer.total_timesteps=240", "run=whole"]))
    train(load_settings([*words, "trainer.total_timesteps=144", "run=parts"]))
    with pytest.raises(SettingsError, match="env=mettagrid:"):
        load_settings(["run=parts", f"runs_dir={tmp_path}"])
    train(load_settings([words[0], "run=parts", f"runs_dir={tmp_path}", "trainer.total_timesteps=240"]))
    assert digest(tmp_path / "whole") == digest(tmp_path / "parts")
