"""Our episodes for MettaGrid's own runner: the same maps, observations and rewards."""

import json
from pathlib import Path

import numpy as np
import pytest
from mettagrid.config.mettagrid_config import MettaGridConfig
from mettagrid.simulator import Simulator

from holdfast.envs import make_world
from holdfast.envs.mettagrid.runner import fixed_map, runner_episode
from holdfast.envs.worlds.mettagrid import MettaGridConfigEnv

FILE = Path(__file__).parents[1] / "toys" / "toy_metta.py"
OWN = {
    name: MettaGridConfigEnv(name=f"mettagrid:{FILE}:{name}")
    for name in ("config", "rung", "teams", "nested", "ascii_map", "staged")
}


@pytest.mark.parametrize("name", OWN)
def test_a_users_configuration(name):
    is_same_episode(OWN[name])


def test_our_games(settings):
    is_same_episode(settings)


def is_same_episode(settings, seed=5, env=1):
    """Compare the first two episodes of an environment under random actions, through MettaGrid's own step."""
    rng = np.random.default_rng(1)
    with make_world(
        settings.model_copy(update={"desync": False} if "desync" in type(settings).model_fields else {}),
        env_ids=range(env, env + 1),
    ) as world:
        obs, _ = world.reset(seed=seed)
        names = world.world_spec.actions.names  # pyright: ignore[reportAttributeAccessIssue]
        for episode in range(2):
            config, own_seed = runner_episode(settings, seed, env, episode)
            config = MettaGridConfig.model_validate(json.loads(config.model_dump_json()))  # as MettaGrid passes it on
            simulation = Simulator().new_simulation(config, own_seed)
            while not simulation.is_done():
                assert np.array_equal(simulation._c_sim.observations(), obs)
                actions = rng.integers(len(names), size=world.num_slots)
                for agent, action in zip(simulation.agents(), actions, strict=True):
                    agent.set_action(names[action])
                simulation.step()
                obs, rewards, *_ = world.step(actions)
                assert np.array_equal(simulation._c_sim.rewards(), rewards)
                assert simulation.is_done() == bool(world.buffers.episode[0] > episode)


def test_a_map_of_many_objects():
    cells = [["wall", "empty", "agent.agent", *(f"thing_{i}" for i in range(100))]]
    assert fixed_map(cells).create().build().grid.tolist() == cells
