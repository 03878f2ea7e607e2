"""One layout of observation features for all games, and no way to mix it with another."""

# pyright: reportAttributeAccessIssue=false
# Settings and specs are unions; each test knows which member it has.

import hashlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from mettagrid.config.mettagrid_c_config import convert_to_cpp_game_config
from mettagrid.config.mettagrid_config import MettaGridConfig
from mettagrid.mettagrid_c import MettaGrid

from holdfast.envs import ArenaEnv, CollectEnv, MemoryEnv
from holdfast.envs.mettagrid.adapter import MettaGridWorld
from holdfast.envs.mettagrid.layout import describe_game
from holdfast.errors import HoldfastError
from holdfast.spec import WorldSpec

SETTINGS = {
    "memory": MemoryEnv(rooms=3),
    "collect": CollectEnv(max_steps=11),
    "arena": ArenaEnv(agents=5, size=10, mines=4, generators=3, altars=3, max_steps=40),
}
NUM_STEPS = 100

ALONE = """
    import hashlib, sys
    import numpy as np
    from holdfast.envs import ArenaEnv, CollectEnv, MemoryEnv
    from holdfast.envs.mettagrid.adapter import MettaGridWorld

    world = MettaGridWorld({settings!r}, range(2))
    digest = hashlib.sha256(world.reset(seed=1)[0].tobytes())
    rng = np.random.default_rng(0)
    for _ in range({num_steps}):
        obs, rewards, _, _, _ = world.step(rng.integers(5, size=world.num_slots))
        digest.update(obs.tobytes() + rewards.tobytes())
    print(digest.hexdigest())
"""


def build_foreign_game():
    """A simulation with other resources and tags, and the features whose ids C++ keeps per process."""
    game = CollectEnv().game().config
    game.resource_names = ["stone", "heart"]
    game.tags = []
    game.obs.global_obs.last_action_move = True
    game.obs.aoe_mask = True
    game.num_agents = 1
    game.agents = []
    config, _ = convert_to_cpp_game_config(game)
    return MettaGrid(config, [["agent.agent", "mine", "wall"]], 0)


def test_worlds_in_one_process_show_what_each_shows_in_its_own():
    """Stepped in turn, with a foreign game built and stepped in between, against one process per world."""
    alone = {
        name: subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(ALONE).format(settings=settings, num_steps=NUM_STEPS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, settings in SETTINGS.items()
    }
    worlds = {name: MettaGridWorld(settings, range(2)) for name, settings in SETTINGS.items()}
    rngs = {name: np.random.default_rng(0) for name in SETTINGS}
    digests = {name: hashlib.sha256(world.reset(seed=1)[0].tobytes()) for name, world in worlds.items()}
    for t in range(NUM_STEPS):
        if t % 7 == 0:
            build_foreign_game().step()
        for name, world in worlds.items():
            obs, rewards, _, _, _ = world.step(rngs[name].integers(5, size=world.num_slots))
            digests[name].update(obs.tobytes() + rewards.tobytes())
    for name, process in alone.items():
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert output.strip() == digests[name].hexdigest(), name


def test_all_games_have_one_layout():
    specs = [settings.describe() for settings in SETTINGS.values()]
    assert len({spec.obs.features for spec in specs}) == 1
    assert len({spec.actions for spec in specs}) == 1
    tags = {tuple(settings.game().config.id_map().tag_names()) for settings in SETTINGS.values()}
    assert tags == {tuple(f"type:{name}" for name in ("agent", "altar", "cue", "door", "generator", "mine", "wall"))}


@pytest.mark.parametrize("change", ["last_action_move", "resource"])
def test_another_layout_is_refused(change):
    game = CollectEnv().game()
    if change == "resource":
        game.config.resource_names.insert(0, "stone")
    else:
        game.config.obs.global_obs.last_action_move = True
    with pytest.raises(
        HoldfastError,
        match="observation features of this MettaGrid game differ.*" + ("stone" if change == "resource" else change),
    ):
        describe_game("other", game)


def test_description_matches_the_world(settings, simulate):
    spec = settings.describe()
    simulation = simulate(settings, 0)
    assert spec.name == settings.name
    assert spec.obs.shape == simulation._c_sim.observations().shape[1:]
    assert spec.obs.window == (settings.window, settings.window)
    assert spec.agents_per_env == simulation.num_agents
    assert list(spec.actions.names) == simulation.action_names
    assert spec.actions.names == ("noop", "move_north", "move_south", "move_west", "move_east")
    assert WorldSpec.from_json(spec.to_json()) == spec
    assert MettaGridWorld(settings, range(1)).world_spec == spec


def test_observations_hold_only_described_features_and_categories(settings, play):
    """Every token seen has a described feature, lies in the window, and a category that has a name."""
    spec = settings.describe()
    by_id = {feature.id: feature for feature in spec.obs.features}
    tokens = np.concatenate([step[0].reshape(-1, 3) for step in play(MettaGridWorld(settings, range(6)), 300)])
    tokens = tokens[tokens[:, 0] != 0xFF]
    assert set(np.unique(tokens[:, 1]).tolist()) <= by_id.keys()
    places = tokens[tokens[:, 0] != 0xFE][:, 0]
    assert (places >> 4).max() < settings.window
    assert (places & 15).max() < settings.window
    for id_, feature in by_id.items():
        values = tokens[tokens[:, 1] == id_][:, 2]
        if feature.categories and values.size:
            assert values.max() < len(feature.categories), feature.name
    actions = tokens[tokens[:, 1] == next(f.id for f in spec.obs.features if f.name == "last_action")][:, 2]
    shown = set() if settings.name == "memory" else set(range(5))
    assert set(actions.tolist()) == shown, "every action is reported as itself"


def test_categories_are_those_of_the_game():
    features = {feature.name: feature for feature in MemoryEnv().describe().obs.features}
    moves = ("noop", "move_north", "move_south", "move_west", "move_east")
    objects = ("agent", "altar", "cue", "door", "generator", "mine", "wall")
    assert {name: f.categories for name, f in features.items() if f.categories} == {
        "agent:group": ("all",),
        "last_action": moves,
        "tag": tuple(f"type:{name}" for name in objects),
        "vibe": ("default", "up", "down"),
    }
    assert features["inv:ore"].normalization == 1.0
    assert features["episode_completion_pct"].normalization == 255.0
    assert not {"last_reward", "goal", "lp:east"} & features.keys()


def test_configuration_serialises_like_any_of_mettagrid(settings):
    config = MettaGridConfig(game=settings.game().config)
    assert MettaGridConfig.model_validate(config.model_dump()).game.resource_names == config.game.resource_names
