"""Training, top to bottom: collect, learn, check, log, save."""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
import torch

from holdfast.config.batches import BatchPlan, plan_batches
from holdfast.config.settings import Settings
from holdfast.custom_code import exits_reported, process_restored
from holdfast.envs import World
from holdfast.errors import HoldfastError
from holdfast.policies import Policy
from holdfast.ranks import Group, Shards
from holdfast.rollout import RecentEpisodes, check_experience_spec, mean_info
from holdfast.runs import Resumable, RunFolder, read_metrics, resume_words
from holdfast.runs.folder import runs_folder
from holdfast.spec import keys
from holdfast.trainer.callback import Callback, UpdateInfo, run_callback
from holdfast.trainer.diagnostics import describe_update, weight_metrics
from holdfast.trainer.eval_metrics import check_eval, eval_metrics
from holdfast.trainer.first_audit import audit_first
from holdfast.trainer.goal import Goal
from holdfast.trainer.learner import Update
from holdfast.trainer.process import check_memory, prepare_process
from holdfast.trainer.progress import make_progress_view
from holdfast.trainer.resume import Start, begin, start_or_resume
from holdfast.trainer.saver import Saver, SharedSaver
from holdfast.trainer.shard import Collected, absorb, collect, make_shards, make_worlds
from holdfast.trainer.signals import Stopped, StopSignals
from holdfast.trainer.sinks import check_sinks, make_sinks
from holdfast.trainer.snapshot import take_snapshot
from holdfast.trainer.state import Progress
from holdfast.trainer.watch import Watch

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    run: Path
    summary: dict[str, Any]


@dataclass(frozen=True)
class Prepared:
    """A run that may start: its settings fit the world, the agent and this machine."""

    shards: Shards
    plan: BatchPlan
    goal: Goal
    start: Start


@process_restored()
@exits_reported()
def check(settings: Settings) -> None:
    """Raise HoldfastError if training would refuse a new run with these settings. Builds the agent, writes nothing."""
    _prepare(settings, None, None, audit=False)


@process_restored()
@exits_reported()
def train(
    settings: Settings, resumable: Resumable | None, group: Group | None = None, callback: Callback | None = None
) -> TrainResult:
    """Train a new run or resume one. All checks come before the first worker or file is created.

    group: the ranks that share the run (None: this process alone). Only rank 0 writes files.
    """
    runs = runs_folder(settings).absolute()  # from here on, the world may change the working directory
    prepared = _prepare(settings, resumable, group)
    shards, plan, goal, start = prepared.shards, prepared.plan, prepared.goal, prepared.start
    state = start.saved.state if start.saved else None
    saved = state.update if state else 0
    signals, run = StopSignals(), None
    try:
        with signals.listening(), ExitStack() as stack:
            worlds = make_worlds(settings, shards, stack)
            if shards.group.leads:
                done = state is not None and goal.reached(saved, state.episode_return, state.episodes)
                found = resumable and (runs / resumable.path.name, settings, saved, resumable.metrics_bytes, done)
                run = stack.enter_context(RunFolder.reopen(*found) if found else RunFolder.create(settings, runs))
            summary = _train(settings, plan, goal, start, worlds, run, signals, callback)
    except Stopped:
        if shards.group.leads:
            logger.warning("Stopped%s", _describe_saved(settings, run) if run else " before training began.")
        raise
    except (Exception, SystemExit):
        if run is not None and run.saved:
            logger.warning("The run in %s failed%s", settings.env.name, _describe_saved(settings, run))
        raise
    return TrainResult(run.path if run else runs, summary)


def _prepare(settings: Settings, resumable: Resumable | None, group: Group | None, audit: bool = True) -> Prepared:
    """Check the settings, and build the agent or restore it. Writes nothing."""
    shards = Shards.of(settings.trainer.shards or 1, group or Group(), settings.seed)
    spec = settings.env.describe()
    num_slots = settings.env.num_envs * spec.agents_per_env
    plan = plan_batches(settings.trainer, num_slots)
    goal = Goal.of(settings.trainer, plan.updates, num_slots)
    check_sinks(settings)
    check_eval(settings)
    prepare_process(settings)
    start = start_or_resume(resumable, settings, spec, plan, shards)
    if shards.group.leads and audit:
        audit_first(settings, start.agent.graph)
    check_experience_spec(start.agent.policy)
    check_memory(settings, start.agent.policy, plan, num_slots // shards.group.size)
    return Prepared(shards, plan, goal, start)


def _train(
    settings: Settings,
    plan: BatchPlan,
    goal: Goal,
    start: Start,
    worlds: list[World],
    run: RunFolder | None,
    signals: StopSignals,
    callback: Callback | None,
) -> dict[str, Any]:
    """Run the training loop and return the run's summary. run: None on a rank that writes no files."""
    trainer, agent, learner, policy = settings.trainer, start.agent, start.learner, start.agent.policy
    ranks, recent = learner.shards, RecentEpisodes()
    shards = make_shards(settings, policy, plan, worlds, ranks)
    watch = Watch(settings, read_metrics(run.path) if run else (), plan.updates)
    progress = begin(start, settings, goal, shards, recent)
    began = perf_counter() - progress.wall_s
    with ExitStack() as stack:
        sinks = (
            [stack.enter_context(closing(sink)) for sink in make_sinks(settings, run.folder, progress.agent_steps)]
            if run
            else []
        )
        title = f"{run.path.name if run else ''}  {worlds[0].world_spec.name}  {settings.policy.agent_word}  seed {settings.seed}"
        view = stack.enter_context(
            make_progress_view(settings.progress if run else "off", title, plan.updates * plan.batch_size)
        )
        saver = stack.enter_context(Saver(run, settings, signals, ranks) if run else SharedSaver(ranks))
        if ranks.group.size > 1:
            stack.enter_context(signals.stopping_together())
        finished = goal.reached(progress.update, recent.mean_return, recent.count)
        while not finished:
            update = progress.update + 1
            stop_if_asked(signals, policy, ranks)
            update_began = perf_counter()
            rollout = collect(shards, policy, ranks)
            recent.add(rollout.episodes)
            try:
                learned = learner.update([shard.experience for shard in shards], progress=(update - 1) / plan.updates)
            finally:  # even if too many skipped steps end the run
                saver.dump_skipped(update, start.skipped)
            absorb(shards, policy, ranks, keys.OBS)  # normalisers change only between batches

            now = perf_counter()
            metrics = {
                "update": update,
                "agent_steps": update * plan.batch_size,
                "wall_s": now - began,
                "sps": plan.batch_size / (now - update_began),
                **_metrics(recent, rollout, learned, now - update_began),
            }
            if trainer.weight_metrics_interval and update % trainer.weight_metrics_interval == 0:
                metrics |= weight_metrics(policy)
            if run is not None and settings.eval.interval and update % settings.eval.interval == 0:
                metrics |= eval_metrics(settings, policy)  # other ranks wait at their next exchange
            progress = progress.after(metrics, learned.parity.max_log_ratio)
            with signals.held():  # do not stop between a line of metrics and its snapshot
                saver.log(metrics)
                saver.pending = take_snapshot(progress, agent, learner, shards, recent)
            for sink in sinks:
                sink.log(metrics, progress.agent_steps)
            if run is not None:
                for warning in watch.look(learned.parity, metrics, learned.without_gradient, recent.info_names):
                    logger.warning(warning)
            if update == 1 and settings.debug.shapes:
                for line in describe_update(policy, shards[0].experience, learned):
                    logger.info(line)
            view.update(metrics)
            stopped = run_callback(callback, UpdateInfo(run.path if run else None, metrics), ranks)
            finished = stopped or goal.reached(update, recent.mean_return, recent.count)
            if finished or (trainer.checkpoint_interval and update % trainer.checkpoint_interval == 0):
                saver.write(last=finished)
    summary = _summary(progress, recent, goal)
    if run is not None:
        run.write_summary(summary)
    return summary


def stop_if_asked(signals: StopSignals, policy: Policy, ranks: Shards) -> None:
    """Raise Stopped if a signal asked any rank to stop; raise HoldfastError if the ranks no longer have the same weights."""
    if ranks.group.size == 1:
        signals.raise_again()
        return
    weights = sum(int(x.detach().flatten().view(torch.int32).sum()) for x in policy.parameters())
    found = ranks.group.concat(torch.tensor([[signals.requested, weights]])).tolist()
    if number := max(number for number, _ in found):
        raise Stopped(number)
    if odd := [rank for rank, (_, other) in enumerate(found) if other != found[0][1]]:
        raise HoldfastError(
            f"rank {odd[0]} has other weights than rank 0. This is a bug in Holdfast, or the hosts differ."
        )


def _metrics(recent: RecentEpisodes, rollout: Collected, learned: Update, seconds: float) -> dict[str, float | None]:
    return {
        "episode_return": recent.mean_return,
        "episode_length": recent.mean_length,
        "episodes": recent.count,
        **mean_info(recent.recent),
        **learned.metrics,
        "parity_max_abs_logratio": learned.parity.max_log_ratio,
        "parity_max_abs_value": learned.parity.max_value,
        "memory_norm": rollout.memory_norm,
        "first_share": rollout.first_share,
        "share_world": rollout.world_s / seconds,
        "share_inference": rollout.inference_s / seconds,
        "share_learning": 1.0 - (rollout.world_s + rollout.inference_s) / seconds,
        "rss_mb": psutil.Process().memory_info().rss / 2**20,
    }


def _summary(progress: Progress, recent: RecentEpisodes, goal: Goal) -> dict[str, Any]:
    return {
        "agent_steps": progress.agent_steps,
        "updates": progress.update,
        "wall_s": progress.wall_s,
        "sps": progress.agent_steps / max(progress.wall_s, 1e-9),
        "episode_return_mean": recent.mean_return,
        "episode_length_mean": recent.mean_length,
        "episodes": recent.count,
        "solved_at": progress.agent_steps if goal.solved(recent.mean_return, recent.count) else None,
        "parity_max_abs_logratio": progress.worst_parity,
        "resumed": progress.resumed,
        "exact": progress.exact,
    }


def _describe_saved(settings: Settings, run: RunFolder) -> str:
    if not run.saved:
        return "; nothing was saved."
    words = resume_words(settings, settings.model_copy(update={"run": run.path.name}))
    return f". The run is saved up to update {run.saved}; to resume it: holdfast train {words}"
