"""Worlds as slots: Gymnasium, PettingZoo and MettaGrid behind one contract, in one process or many."""

from holdfast.envs.make import describe, make_world
from holdfast.envs.replayable import why_not_replayable
from holdfast.envs.world import Buffers, ReplayError, ReplayPoint, World, episode_seed

__all__ = [
    "Buffers",
    "ReplayError",
    "ReplayPoint",
    "World",
    "describe",
    "episode_seed",
    "make_world",
    "why_not_replayable",
]
