"""How a run begins: from nothing, or where an earlier process left it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from holdfast.checkpoint import Checkpoint, CheckpointError, load_checkpoint
from holdfast.config.batches import BatchPlan
from holdfast.config.settings import Settings
from holdfast.envs import why_not_replayable
from holdfast.errors import HoldfastError
from holdfast.policies import MettaAgent
from holdfast.rollout import Collector
from holdfast.runs import Past
from holdfast.runs.folder import CHECKPOINTS
from holdfast.spec import WorldSpec
from holdfast.trainer.learner import Learner
from holdfast.trainer.saver import saved_updates
from holdfast.trainer.snapshot import put_back
from holdfast.trainer.start import say

NOTHING_DONE = {"update": 0, "agent_steps": 0, "wall_s": 0.0, "worst_parity": 0.0, "episode_return": None, "resumed": 0}
GROUPS = {"policy", "optimizer", "memory", "rng", "arrived", "episodes"}
OPTIONAL_GROUPS = {"world", "first"}  # where it can be replayed, where learning refers to them

SIGNED = "episode_return"
FACTS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("update", "agent_steps", "resumed", "episodes", "world_seed", "world_steps"), (int,)),
    **dict.fromkeys(("wall_s", "worst_parity"), (int, float)),
    SIGNED: (int, float, type(None)),
    "exact": (bool,),
}


def find_saved(
    past: Past, settings: Settings, spec: WorldSpec, plan: BatchPlan
) -> tuple[Checkpoint, MettaAgent] | tuple[None, None]:
    """The newest checkpoint that can be used, and the agent in it; each other one is named. None if none was ever written."""
    for change in past.changes:
        say(f"run={past.path.name}: from here on with {change}")
    refused: list[CheckpointError] = []
    for path in reversed(saved_updates(past.path / CHECKPOINTS)):
        try:
            saved = load_checkpoint(path)
            agent = _restore_agent(path, saved, settings, spec, plan)
        except CheckpointError as error:
            refused.append(error)
            continue
        for error in refused:
            say(f"{error}; {path.name} is used instead")
        return saved, agent
    if refused:
        reasons = "".join(f"{error}\n" for error in refused)
        raise HoldfastError(
            f"{reasons}run={past.path.name}: none of its checkpoints can be used, so it cannot go on.\n"
            "To start anew, choose another run=NAME or delete its folder."
        )
    say(f"run={past.path.name}: it ended before its first checkpoint, so it starts again from the beginning.")
    return None, None


def updates_of(saved: Checkpoint | None) -> int:
    return 0 if saved is None else saved.facts["update"]


def _restore_agent(path: Path, saved: Checkpoint, settings: Settings, spec: WorldSpec, plan: BatchPlan) -> MettaAgent:
    """The agent with the weights it had; CheckpointError where they, or what learned them, are of another one."""
    try:
        tensors, facts = saved.tensors, saved.facts
        if odd := sorted((tensors.keys() ^ GROUPS) - OPTIONAL_GROUPS):
            raise CheckpointError(f"{odd[0]} is {'not expected' if odd[0] in tensors else 'missing'} in it")
        _check_facts(facts)
        agent = MettaAgent.restore(
            settings.policy, WorldSpec.from_json(facts["world"]), facts["agent"], tensors["policy"]
        )
        agent.initialize_to_world(spec, learn=True)
        learner = Learner(agent.policy, settings.trainer, plan, torch.Generator())
        learner.restore(tensors.get("first", {}), tensors["optimizer"], facts["optimizer"])
    except Exception as error:  # hostile facts raise whatever the code they reach raises: all of it means the same
        reason = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())[:200]
        raise CheckpointError(f"{path}: it does not fit this run: {reason.rstrip('.')}") from error
    return agent


def _check_facts(facts: Mapping[str, Any]) -> None:
    for key, kinds in FACTS.items():
        if key not in facts:
            raise CheckpointError(f"{key} is missing in its facts")
        value = facts[key]
        counts = isinstance(value, int | float) and key != SIGNED
        if type(value) not in kinds or (counts and not 0 <= value < 2**64):
            raise CheckpointError(f"{key} is {str(value)[:80]!r} in its facts")


def begin(
    saved: Checkpoint | None,
    settings: Settings,
    updates: int,
    agent: MettaAgent,
    learner: Learner,
    collector: Collector,
) -> dict[str, Any]:
    """Bring everything to where the run goes on, and say what has been done so far of all these updates."""
    if saved is None:
        collector.start(settings.seed)
        problem = why_not_replayable(settings.env, settings.trainer.num_workers > 0, settings.trainer.worker_timeout)
        if problem:
            say(f"{problem}\nIf this run is ever continued, it will begin new episodes there: close, but not exact.")
        return {**NOTHING_DONE, "exact": not problem}
    try:
        lost = put_back(saved, agent, learner, collector)
    except CheckpointError as error:
        raise CheckpointError(f"run={settings.run}: update {updates_of(saved)} cannot be continued: {error}") from error
    facts = {key: saved.facts[key] for key in (*NOTHING_DONE, "exact")}
    steps = f"{facts['agent_steps']:,} steps"
    if facts["update"] >= updates:
        say(f"run={settings.run}: its {steps} are done; a larger trainer.total_timesteps goes on.")
        return facts
    other = _other_versions(saved.manifest)
    if other:
        say(f"run={settings.run}: saved with {other}: from here on, numbers may differ in their last digits.")
    if lost:
        say(f"{lost}.\nThe run goes on after {steps} with new episodes, so not exactly as it would have.")
    else:
        say(f"run={settings.run}: goes on after {steps}.")
    return {**facts, "resumed": facts["resumed"] + 1, "exact": facts["exact"] and not lost and not other}


def _other_versions(manifest: Mapping[str, Any]) -> str:
    """What rounds differently than when the checkpoint was written, in words."""
    was = {"torch": manifest.get("versions", {}).get("torch"), "threads": manifest.get("threads")}
    now = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    return ", ".join(f"{name} {was[name]} (here {now[name]})" for name in was if was[name] != now[name])
