"""The episodes of our worlds for MettaGrid's own runner."""

from __future__ import annotations

import string

from holdfast.envs.mettagrid import api as mg
from holdfast.envs.mettagrid.game import Map, MettaGridEnv
from holdfast.envs.world import episode_seed

CHARACTERS = {"wall": "#", "empty": ".", "agent.agent": "@"}  # MettaGrid allows no others for these


def runner_episode(settings: MettaGridEnv, seed: int, env: int = 0, episode: int = 0) -> tuple[mg.MettaGridConfig, int]:
    """Return the configuration and the seed with which MettaGrid plays the same episode as our world.

    seed: of the world, such as `holdfast evaluate --seed`. The configuration contains the map, because MettaGrid's map
    builders would draw another one.
    """
    own_seed = episode_seed(seed, env, episode)
    game = settings.games()(env, episode, own_seed)
    update = {"map_builder": fixed_map(game.map(own_seed))}
    return mg.MettaGridConfig(game=game.config.model_copy(deep=True).model_copy(update=update)), own_seed


def fixed_map(cells: Map) -> mg.MapBuilderConfig:
    """Return the configuration of a map builder that builds this map."""
    others = sorted({cell for row in cells for cell in row} - set(CHARACTERS))
    free = [c for c in string.ascii_letters + string.digits if c not in CHARACTERS.values()]
    free += map(chr, range(0x100, 0x100 + len(others)))
    characters = CHARACTERS | dict(zip(others, free, strict=False))
    rows = [[characters[cell] for cell in row] for row in cells]
    return mg.AsciiMapBuilder.Config(map_data=rows, char_to_map_name={c: name for name, c in characters.items()})
