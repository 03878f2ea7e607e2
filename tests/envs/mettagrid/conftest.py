"""Small worlds of every kind, and one episode as MettaGrid itself runs it."""

# pyright: reportAttributeAccessIssue=false, reportPossiblyUnboundVariable=false
# Without mettagrid these tests are not collected, so its names are always bound.

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from holdfast.envs import ArenaEnv, CollectEnv, MemoryEnv

if find_spec("mettagrid") is None:  # it has wheels for Python 3.11 and 3.12 only
    collect_ignore_glob = ["test_*.py"]
else:
    from mettagrid.config.mettagrid_config import MettaGridConfig
    from mettagrid.map_builder.ascii import AsciiMapBuilder
    from mettagrid.simulator import Simulation, Simulator

    from holdfast.envs.mettagrid.adapter import MettaGridWorld
    from holdfast.envs.mettagrid.game import MettaGridEnv

SMALL: dict[str, MettaGridEnv] = {
    "memory": MemoryEnv(rooms=3),
    "collect": CollectEnv(max_steps=11),
    "arena": ArenaEnv(agents=5, size=10, mines=4, generators=3, altars=3, max_steps=40, desync=False),
}
SYMBOLS = {
    "#": "wall",
    ".": "empty",
    "@": "agent.agent",
    "u": "cue_up",
    "d": "cue_down",
    "g": "door_good",
    "b": "door_bad",
    "m": "mine",
    "n": "generator",
    "a": "altar",
}


@pytest.fixture(params=SMALL)
def settings(request: pytest.FixtureRequest) -> MettaGridEnv:
    return SMALL[request.param]


@pytest.fixture
def simulate() -> Callable[[MettaGridEnv, int], Simulation]:
    """Builds an episode with MettaGrid's own front door: its configuration converted anew, its own arrays."""

    def build(settings: MettaGridEnv, seed: int) -> Simulation:
        game = settings.game()
        symbol = {name: char for char, name in SYMBOLS.items()}
        game.config.map_builder = AsciiMapBuilder.Config(
            map_data=[[symbol[cell] for cell in row] for row in game.map(seed)], char_to_map_name=SYMBOLS
        )
        return Simulator().new_simulation(MettaGridConfig(game=game.config), seed)

    return build


@pytest.fixture
def random_returns() -> Callable[..., np.ndarray]:
    """Returns of whole episodes under random actions."""

    def play(settings: MettaGridEnv, num_envs: int, num_steps: int) -> np.ndarray:
        world = MettaGridWorld(settings, range(num_envs))
        rng = np.random.default_rng(0)
        world.reset(seed=5)
        total, returns = np.zeros(world.num_slots), []
        for _ in range(num_steps):
            actions = rng.integers(len(world.world_spec.actions.names), size=world.num_slots)
            _, rewards, terminated, truncated, _ = world.step(actions)
            total += rewards
            ended = terminated | truncated
            returns.extend(total[ended].tolist())
            total[ended] = 0.0
        return np.array(returns)

    return play


@pytest.fixture
def play() -> Callable[..., list[tuple[Any, ...]]]:
    """Copies of what a world hands out, step by step, under the actions of one generator per environment."""

    def run(world: MettaGridWorld, num_steps: int, seed: int = 3) -> list[tuple[Any, ...]]:
        agents = world.world_spec.agents_per_env
        rngs = [np.random.default_rng([77, env]) for env in world.env_ids]
        obs, _ = world.reset(seed=seed)
        seen: list[tuple[Any, ...]] = [(obs.copy(),)]
        for _ in range(num_steps):
            actions = np.concatenate([rng.integers(5, size=agents) for rng in rngs])
            obs, rewards, terminated, truncated, info = world.step(actions)
            ended = terminated | truncated
            final = np.where(ended[:, None, None], info["final_obs"], 0)
            seen.append((obs.copy(), rewards.copy(), terminated.copy(), truncated.copy(), final))
        return seen

    return run
