"""How a run begins: from nothing, or where an earlier process left it."""

from __future__ import annotations

from typing import Any

from holdfast.checkpoint import Checkpoint, CheckpointError, list_checkpoints, load_checkpoint, newest_checkpoint
from holdfast.config.settings import Settings
from holdfast.envs import why_not_replayable
from holdfast.errors import HoldfastError, SettingsError
from holdfast.policies import MettaAgent
from holdfast.rollout import Collector
from holdfast.runs import Past
from holdfast.runs.files import fitting
from holdfast.runs.folder import CHECKPOINTS
from holdfast.spec import WorldSpec
from holdfast.trainer.learner import Learner
from holdfast.trainer.snapshot import put_back
from holdfast.trainer.start import say

NOTHING_DONE = {"update": 0, "agent_steps": 0, "wall_s": 0.0, "worst_parity": 0.0, "episode_return": None, "resumed": 0}

SIGNED = "episode_return"
FACTS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("update", "agent_steps", "resumed", "episodes", "world_seed", "world_steps"), (int,)),
    **dict.fromkeys(("wall_s", "worst_parity"), (int, float)),
    SIGNED: (int, float, type(None)),
    "exact": (bool,),
}


def find_saved(past: Past) -> Checkpoint | None:
    """The newest checkpoint that verifies, each damaged one named; None if none was ever written."""
    for change in past.changes:
        say(f"run={past.path.name}: from here on with {change}")
    folder = past.path / CHECKPOINTS
    damaged: list[CheckpointError] = []
    path = newest_checkpoint(folder, on_damaged=damaged.append)
    instead = f"{path.name} is used instead" if path else "no other is left"
    for error in damaged:
        say(f"{error}; {instead}")
    if path is None:
        if list_checkpoints(folder):
            raise HoldfastError(
                f"run={past.path.name}: none of its checkpoints can be used, so it cannot go on.\n"
                "To start anew, choose another run=NAME or delete its folder."
            )
        say(f"run={past.path.name}: it ended before its first checkpoint, so it starts again from the beginning.")
        return None
    saved = load_checkpoint(path)
    for key, kinds in FACTS.items():
        value = saved.facts.get(key)
        odd = type(value) not in kinds
        if isinstance(value, int | float) and key != SIGNED:
            odd = odd or not 0 <= value < 2**64
        if odd:
            raise CheckpointError(f"{path}: not of a run that can go on: {key} is {str(value)[:80]!r}")
    return saved


def updates_of(saved: Checkpoint | None) -> int:
    return 0 if saved is None else saved.facts["update"]


def restore_agent(settings: Settings, spec: WorldSpec, saved: Checkpoint) -> MettaAgent:
    """The agent with the weights it had."""
    what = f"run={settings.run}: its checkpoint is of another agent or world"
    try:
        with fitting(what):
            world = WorldSpec.from_json(saved.facts["world"])
            agent = MettaAgent.restore(settings.policy, world, saved.facts["agent"], saved.tensors["policy"])
            agent.initialize_to_world(spec, learn=True)
    except SettingsError as error:
        raise CheckpointError(f"{what}: {error}") from error
    return agent


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
        problem = why_not_replayable(settings.env)
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
    if lost:
        say(f"{lost}.\nThe run goes on after {steps} with new episodes, so not exactly as it would have.")
    else:
        say(f"run={settings.run}: goes on after {steps}.")
    return {**facts, "resumed": facts["resumed"] + 1, "exact": facts["exact"] and not lost}
