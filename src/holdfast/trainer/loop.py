"""Training, top to bottom: collect, learn, check, log, save."""

from __future__ import annotations

import logging
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

from holdfast.config.batches import BatchPlan, plan_batches
from holdfast.config.settings import Settings
from holdfast.custom_code import exits_reported, process_restored
from holdfast.envs import World, make_world
from holdfast.errors import HoldfastError
from holdfast.policies import Policy
from holdfast.ppo import Experience
from holdfast.rollout import Collector, Rollout, check_experience_spec
from holdfast.runs import Resumable, RunFolder, read_metrics
from holdfast.runs.folder import runs_folder
from holdfast.spec import keys
from holdfast.trainer.diagnostics import describe_update, weight_metrics
from holdfast.trainer.first_audit import audit_first
from holdfast.trainer.learner import Update
from holdfast.trainer.process import check_memory, experience_spec, prepare_process
from holdfast.trainer.progress import make_progress_view
from holdfast.trainer.resume import Start, begin, start_or_resume
from holdfast.trainer.saver import Saver
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


@process_restored()
@exits_reported()
def train(settings: Settings, resumable: Resumable | None) -> TrainResult:
    """Train a new run or resume one. All checks come before the first worker or file is created."""
    runs = runs_folder(settings).absolute()  # from here on, the world may change the working directory
    spec = settings.env.describe()
    plan = plan_batches(settings.trainer, settings.env.num_envs * spec.agents_per_env)
    check_sinks(settings)
    prepare_process(settings)
    start = start_or_resume(resumable, settings, spec, plan)
    audit_first(settings, start.agent.graph)
    check_experience_spec(start.agent.policy)
    check_memory(settings, start.agent.policy, plan, settings.env.num_envs * spec.agents_per_env)
    saved = start.saved.state.update if start.saved else 0
    t, signals, run = settings.trainer, StopSignals(), None
    try:
        with (
            signals.listening(),
            make_world(
                settings.env, t.num_workers, worker_timeout=t.worker_timeout, worker_failures=t.worker_failures
            ) as world,
            RunFolder.reopen(runs / resumable.path.name, settings, saved, resumable.metrics_bytes)
            if resumable
            else RunFolder.create(settings, runs) as run,
        ):
            summary = _train(settings, plan, start, world, run, signals)
    except Stopped:
        logger.warning("Stopped%s", _describe_saved(settings, run) if run else " before training began.")
        raise
    except (HoldfastError, SystemExit):
        if run is not None and run.saved:
            logger.warning("The run failed%s", _describe_saved(settings, run))
        raise
    return TrainResult(run.path, summary)


def _train(
    settings: Settings, plan: BatchPlan, start: Start, world: World, run: RunFolder, signals: StopSignals
) -> dict[str, Any]:
    """Run the training loop and return the run's summary."""
    trainer, agent, learner, policy = settings.trainer, start.agent, start.learner, start.agent.policy
    experience = make_experience(settings, policy, plan, world.num_slots)
    collector = Collector(world, policy, experience, trainer.reset_memory_each_rollout)
    watch = Watch(settings, read_metrics(run.path))
    progress = begin(start, settings, plan.updates, collector)
    began = perf_counter() - progress.wall_s
    title = f"{run.path.name}  {world.world_spec.name}  {settings.policy.agent_word}  seed {settings.seed}"
    with ExitStack() as stack:
        sinks = [stack.enter_context(closing(sink)) for sink in make_sinks(settings, run.folder, progress.agent_steps)]
        view = stack.enter_context(make_progress_view(settings.progress, title, plan.updates * plan.batch_size))
        saver = stack.enter_context(Saver(run, settings, signals))
        for update in range(progress.update + 1, plan.updates + 1):
            signals.raise_again()
            update_began = perf_counter()
            rollout = collector.collect()
            try:
                learned = learner.update(experience, progress=(update - 1) / plan.updates)
            finally:  # even if too many skipped steps end the run
                saver.dump_skipped(update, start.skipped)
            policy.absorb(experience.whole().inputs[keys.OBS].flatten(0, 1))  # normalisers change only between batches

            now = perf_counter()
            metrics = {
                "update": update,
                "agent_steps": update * plan.batch_size,
                "wall_s": now - began,
                "sps": plan.batch_size / (now - update_began),
                **_metrics(collector, rollout, learned, now - update_began),
            }
            if trainer.weight_metrics_interval and update % trainer.weight_metrics_interval == 0:
                metrics |= weight_metrics(policy)
            progress = progress.after(metrics, learned.parity.max_log_ratio)
            with signals.held():  # do not stop between a line of metrics and its snapshot
                saver.log(metrics)
                saver.pending = take_snapshot(progress, agent, learner, collector)
            for sink in sinks:
                sink.log(metrics, progress.agent_steps)
            for warning in watch.look(learned.parity, metrics, learned.without_gradient):
                logger.warning(warning)
            if update == 1 and settings.debug.shapes:
                for line in describe_update(policy, experience, learned):
                    logger.info(line)
            view.update(metrics)
            if update == plan.updates or (trainer.checkpoint_interval and update % trainer.checkpoint_interval == 0):
                saver.write(last=update == plan.updates)
    summary = _summary(progress, collector)
    run.write_summary(summary)
    return summary


def make_experience(settings: Settings, policy: Policy, plan: BatchPlan, num_slots: int) -> Experience:
    """Allocate the experience buffer for one rollout."""
    return Experience(
        experience_spec(policy),
        num_slots,
        plan.horizon,
        plan.segments_per_slot,
        policy.state_shapes,
        burn_in=settings.trainer.burn_in,
        device=settings.device,
        poison=settings.debug.poison,
    )


def _metrics(collector: Collector, rollout: Rollout, learned: Update, seconds: float) -> dict[str, float | None]:
    return {
        "episode_return": collector.episodes.mean_return,
        "episode_length": collector.episodes.mean_length,
        "episodes": collector.episodes.count,
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


def _summary(progress: Progress, collector: Collector) -> dict[str, Any]:
    return {
        "agent_steps": progress.agent_steps,
        "updates": progress.update,
        "wall_s": progress.wall_s,
        "sps": progress.agent_steps / max(progress.wall_s, 1e-9),
        "episode_return_mean": collector.episodes.mean_return,
        "episode_length_mean": collector.episodes.mean_length,
        "episodes": collector.episodes.count,
        "parity_max_abs_logratio": progress.worst_parity,
        "resumed": progress.resumed,
        "exact": progress.exact,
    }


def _describe_saved(settings: Settings, run: RunFolder) -> str:
    if not run.saved:
        return "; nothing was saved."
    words = f"run={run.path.name}" + (f" runs_dir={settings.runs_dir}" if settings.runs_dir != "runs" else "")
    return f". The run is saved up to update {run.saved}; to resume it: holdfast train {words}"
