"""Untrained policies in MettaGrid worlds, recorded as `holdfast view` records them, and the replays of their episodes."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import torch

from holdfast.config import load_settings
from holdfast.config.sections import EnvSection
from holdfast.envs.worlds.collect import CollectEnv
from holdfast.envs.worlds.memory import MemoryEnv
from holdfast.envs.worlds.mettagrid import MettaGridConfigEnv
from holdfast.policies import make_policy
from holdfast.view.influence import influences
from holdfast.view.recording import record
from holdfast.view.run_page import Seen

TOYS = Path(__file__).parents[1] / "envs" / "toys" / "toy_metta.py"
WORLDS: dict[str, EnvSection] = {
    "memory": MemoryEnv(rooms=2),
    "collect": CollectEnv(size=7, mines=20),  # no agent can move without reward
    "teams": MettaGridConfigEnv(name=f"mettagrid:{TOYS}:teams"),  # with changes of vibe
    "staged": MettaGridConfigEnv(name=f"mettagrid:{TOYS}:staged"),  # other rules in every episode
}
SEED, LOOKBACK = 7, 4


def see(env: EnvSection, episodes: int = 3, **options: Any) -> Seen:
    """Record an untrained policy whose actions depend strongly on what it sees."""
    torch.manual_seed(4)
    policy = make_policy(load_settings(["env=memory"]).policy, env.describe())
    with torch.no_grad():
        policy.encoded_obs.weight.mul_(100)
    recording = record(policy, env, episodes, SEED, **options)
    run = {"name": "small", "checkpoint": "00000007"}
    return Seen(policy, recording, influences(policy, recording, LOOKBACK), {"run": run})


def read(path: Path) -> dict[str, Any]:
    return json.loads(zlib.decompress(path.read_bytes()))
