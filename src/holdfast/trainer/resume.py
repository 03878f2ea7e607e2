"""Start a run from new weights, or resume it from its newest usable checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.checkpoint import CheckpointError, first_usable, load_checkpoint
from holdfast.config.batches import BatchPlan
from holdfast.config.settings import Settings
from holdfast.envs import why_not_replayable
from holdfast.errors import one_line
from holdfast.policies import MettaAgent
from holdfast.ranks import Shards
from holdfast.rollout import RecentEpisodes
from holdfast.runs import Resumable
from holdfast.runs.folder import CHECKPOINTS
from holdfast.spec import WorldSpec
from holdfast.trainer.agent import make_agent
from holdfast.trainer.goal import Goal
from holdfast.trainer.learner import Learner
from holdfast.trainer.process import choose_num_threads
from holdfast.trainer.saver import SkippedStep, saved_updates
from holdfast.trainer.shard import Shard
from holdfast.trainer.snapshot import Snapshot, pack_tensors, restore_snapshot, unpack_tensors
from holdfast.trainer.state import Progress, RunState

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """The agent, the learner and the saved state that a run starts with. `saved` is None for a new run."""

    agent: MettaAgent
    learner: Learner
    skipped: list[SkippedStep]  # filled by the learner
    saved: Snapshot | None = None
    other_versions: str = ""  # differences from the checkpoint that affect rounding: "torch 2.12 (now 2.13)"


def start_or_resume(
    resumable: Resumable | None, settings: Settings, spec: WorldSpec, plan: BatchPlan, shards: Shards
) -> Start:
    """Build agent and learner, restored from the newest usable checkpoint if the run is resumed. Writes nothing.

    Rank 0 reads the files and sends what it found to the others.
    """
    if shards.group.size == 1:
        return _find_start(resumable, settings, spec, plan, shards)
    start = _find_start(resumable, settings, spec, plan, shards) if shards.group.leads else None
    facts, tensors = _describe(start) if start else ({}, {})
    found = json.loads(shards.group.broadcast(json.dumps(facts).encode()))
    data = shards.group.broadcast(pack_tensors(tensors))
    if start is not None:
        return start
    (tensors,) = unpack_tensors(data)
    world, agent = WorldSpec.from_json(found["world"]), found["agent"]
    restored = MettaAgent.restore(settings.policy, world, agent, tensors["policy"])
    if found["state"] is None:
        return _start(restored, settings, plan, shards)
    saved = Snapshot(RunState.from_json(found["state"]), tensors)
    restored.initialize_to_world(spec, learn=True)
    start = _start(restored, settings, plan, shards)
    start.learner.restore(tensors.get("first", {}), tensors["optimizer"], saved.state.optimizer)
    return replace(start, saved=saved, other_versions=found["other_versions"])


def _describe(start: Start) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """Return what other ranks need to build the same start: JSON and tensors."""
    if start.saved is not None:
        state = asdict(start.saved.state)
        facts = {"world": state["world"], "agent": state["agent"], "state": state}
        return {**facts, "other_versions": start.other_versions}, start.saved.tensors
    facts = {"world": start.agent.built_for.to_json(), "agent": start.agent.facts(), "state": None}
    return facts, {"policy": start.agent.policy.state_dict()}


def _find_start(
    resumable: Resumable | None, settings: Settings, spec: WorldSpec, plan: BatchPlan, shards: Shards
) -> Start:
    if resumable is None:
        return _start(make_agent(settings, spec), settings, plan, shards)
    name = resumable.path.name
    for change in resumable.changes:
        logger.info("run=%s: setting changed on resume: %s", name, change)
    checkpoints = reversed(saved_updates(resumable.path / CHECKPOINTS))
    try:
        found = first_usable(checkpoints, lambda path: _start_from(path, settings, spec, plan, shards))
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}\nrun={name} cannot be resumed. To start over, choose another run=NAME or delete the run's folder."
        ) from error
    if found:
        return found[1]
    if settings.policy.weights or settings.policy.is_graph_file:
        raise CheckpointError(
            f"run={name}: cannot be resumed. It has no checkpoint, and its agent or its weights come from another file.\n"
            "Start a new run with the same settings and another run=NAME, or delete this run's folder and start it again."
        )
    logger.warning("run=%s: the run ended before its first checkpoint, so training starts from the beginning.", name)
    return _start(make_agent(settings, spec), settings, plan, shards)


def _start_from(path: Path, settings: Settings, spec: WorldSpec, plan: BatchPlan, shards: Shards) -> Start:
    """Restore agent and learner from a checkpoint; raise CheckpointError if it is damaged or does not match the settings."""
    checkpoint = load_checkpoint(path)
    try:
        saved = Snapshot.from_checkpoint(checkpoint)
        state, tensors = saved.state, saved.tensors
        agent = MettaAgent.restore(settings.policy, WorldSpec.from_json(state.world), state.agent, tensors["policy"])
        agent.initialize_to_world(spec, learn=True)
        start = _start(agent, settings, plan, shards)
        start.learner.restore(tensors.get("first", {}), tensors["optimizer"], state.optimizer)
    except Exception as error:  # a malicious checkpoint can cause any exception
        reason = f"{error} is missing" if isinstance(error, KeyError) else one_line(error)
        raise CheckpointError(f"{path}: does not fit this run: {reason.rstrip('.')}") from error
    return replace(start, saved=saved, other_versions=_other_versions(checkpoint.manifest))


def _start(agent: MettaAgent, settings: Settings, plan: BatchPlan, shards: Shards) -> Start:
    """Move the agent to its device, choose the number of threads, and build the learner."""
    policy = agent.to(settings.device).policy
    torch.set_num_threads(settings.trainer.threads or choose_num_threads(policy, plan))
    skipped: list[SkippedStep] = []
    generators = [torch.Generator().manual_seed(shards.seed(settings.seed, number)) for number in shards.own]
    learner = Learner(policy, settings.trainer, plan, generators, lambda *step: skipped.append(step), shards)
    return Start(agent, learner, skipped)


def begin(start: Start, settings: Settings, goal: Goal, shards: Sequence[Shard], recent: RecentEpisodes) -> Progress:
    """Start the worlds of a new run, or restore a saved run. Return the progress."""
    if start.saved is None:
        for shard in shards:
            shard.collector.start(settings.seed)
        problem = why_not_replayable(settings.env, settings.trainer.num_workers > 0, settings.trainer.worker_timeout)
        problem = next(filter(None, start.learner.shards.gather(problem)), None)
        if problem:
            logger.warning("%s\nIf this run is resumed, it starts new episodes, so the resume is not exact.", problem)
        return Progress(exact=not problem)
    progress, name = start.saved.state.progress, settings.run
    try:
        lost = restore_snapshot(start.saved, start.agent, start.learner, shards, recent)
    except CheckpointError as error:
        raise CheckpointError(f"run={name}: cannot be resumed at update {progress.update}: {error}") from error
    steps = f"{progress.agent_steps:,} steps"
    if goal.reached(progress.update, recent.mean_return, recent.count):
        key, by = "trainer.total_timesteps", ""
        if progress.update < goal.updates:
            key, by = "trainer.stop_at_return", f" with a mean return of {recent.mean_return:.4g}"
        logger.info("run=%s: already finished at %s%s; raise %s to continue.", name, steps, by, key)
        return progress
    if start.other_versions:
        logger.warning("run=%s: saved with %s, so results may differ in the last digits.", name, start.other_versions)
    if lost:
        logger.warning(
            "%s.\nrun=%s: resuming after %s with new episodes, so the resume is not exact.", lost, name, steps
        )
    else:
        logger.info("run=%s: resuming after %s.", name, steps)
    exact = progress.exact and not lost and not start.other_versions
    return replace(progress, resumed=progress.resumed + 1, exact=exact)


def _other_versions(manifest: Mapping[str, Any]) -> str:
    """Describe the torch version and number of threads, which affect rounding, if they differ from the checkpoint's."""
    saved = {"torch": manifest["versions"].get("torch"), "threads": manifest["threads"]}
    now = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    return ", ".join(f"{name} {saved[name]} (now {now[name]})" for name in saved if saved[name] != now[name])
