"""Training, top to bottom: collect, learn, look, log, save."""

from __future__ import annotations

import math
import random
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from holdfast.checkpoint import Checkpoint
from holdfast.config.batches import BatchPlan, plan_batches
from holdfast.config.settings import Settings
from holdfast.envs import World, describe, make_world
from holdfast.errors import HoldfastError, SettingsError
from holdfast.policies import MettaAgent, Policy
from holdfast.ppo import Experience
from holdfast.rollout import Collector, Rollout, check_experience_spec
from holdfast.runs import RunFolder, find_past, read_metrics
from holdfast.spec import WorldSpec, keys
from holdfast.trainer.learner import Learner, Update
from holdfast.trainer.malloc import keep_freed_memory
from holdfast.trainer.progress import make_progress
from holdfast.trainer.resume import begin, find_saved, updates_of
from holdfast.trainer.saver import Saver
from holdfast.trainer.shapes import describe_update
from holdfast.trainer.signals import Stopped, StopSignals
from holdfast.trainer.sinks import check_sinks, make_sinks
from holdfast.trainer.snapshot import take_snapshot
from holdfast.trainer.start import audit_first, make_agent, say
from holdfast.trainer.watch import Watch
from holdfast.trainer.weights import weight_figures

SMALL_WORK = 4e9  # floating point operations per minibatch
ALL_THREADS = torch.get_num_threads()  # as torch starts, before any run changes it


@dataclass(frozen=True)
class TrainResult:
    run: Path
    summary: dict[str, Any]


def train(settings: Settings) -> TrainResult:
    """Train as the settings say; go on with a run that exists. Whatever can be refused is refused before a worker or a file exists."""
    spec = describe(settings.env)
    plan = plan_batches(settings.trainer, settings.env.num_envs * spec.agents_per_env)
    check_sinks(settings)
    past = find_past(settings)
    _set_up(settings)
    saved, agent = find_saved(past, settings, spec, plan) if past else (None, None)
    agent = (agent or make_agent(settings, spec)).to(settings.device)
    policy = agent.policy
    audit_first(settings)
    policy.sampling.generator = torch.Generator(settings.device).manual_seed(settings.seed)
    check_experience_spec(policy)
    torch.set_num_threads(settings.trainer.threads or threads_that_pay(policy, plan))
    signals, run = StopSignals(), None
    try:
        with (
            signals.listening(),
            make_world(
                settings.env,
                settings.trainer.num_workers,
                worker_timeout=settings.trainer.worker_timeout,
                worker_failures=settings.trainer.worker_failures,
            ) as world,
            RunFolder.create(settings)
            if past is None
            else RunFolder.reopen(past.path, settings, updates_of(saved), past.metrics_bytes) as run,
        ):
            summary = _train(settings, spec, plan, agent, world, run, saved, signals)
    except Stopped:
        say("Stopped before training began." if run is None else f"Stopped{_what_is_saved(settings, run)}")
        raise
    except HoldfastError:
        if run is not None and run.saved:
            say(f"Ended by an error{_what_is_saved(settings, run)}")
        raise
    return TrainResult(run.path, summary)


def _train(
    settings: Settings,
    spec: WorldSpec,
    plan: BatchPlan,
    agent: MettaAgent,
    world: World,
    run: RunFolder,
    saved: Checkpoint | None,
    signals: StopSignals,
) -> dict[str, Any]:
    trainer, policy = settings.trainer, agent.policy
    experience = make_experience(settings, policy, plan, world.num_slots)
    collector = Collector(world, policy, experience, trainer.reset_memory_each_rollout)
    generator = torch.Generator().manual_seed(settings.seed)
    learner = Learner(policy, trainer, plan, generator, on_skipped=lambda *bad: skipped.append(bad))
    skipped: list[tuple[float, dict[str, Tensor]]] = []
    watch = Watch(settings, read_metrics(run.path))
    total = plan.updates * plan.batch_size
    title = f"{run.path.name}  {spec.name}  {settings.policy.agent_word}  seed {settings.seed}"
    facts = begin(saved, settings, plan.updates, agent, learner, collector)
    process, began = psutil.Process(), perf_counter() - facts["wall_s"]
    with ExitStack() as stack:
        sinks = [stack.enter_context(closing(s)) for s in make_sinks(settings, run.path, facts["agent_steps"])]
        progress = stack.enter_context(make_progress(settings.progress, title, total))
        saver = Saver(run, agent, settings, signals, progress.message)
        stack.enter_context(saver)
        for update in range(facts["update"] + 1, plan.updates + 1):
            update_began = perf_counter()
            rollout = collector.collect()
            try:
                learned = learner.update(experience, progress=(update - 1) / plan.updates)
            finally:  # also if one too many ends the run
                for warning in saver.keep_skipped(update, skipped):
                    progress.message(warning)
            absorb_observations(policy, experience)

            seconds = perf_counter() - update_began
            metrics = {
                "update": update,
                "agent_steps": update * plan.batch_size,
                "wall_s": perf_counter() - began,
                "sps": plan.batch_size / seconds,
                **_figures(collector, rollout, learned, seconds),
                "rss_mb": process.memory_info().rss / 2**20,
            }
            if trainer.weight_metrics_interval and update % trainer.weight_metrics_interval == 0:
                metrics |= weight_figures(policy)
            facts |= {key: metrics[key] for key in ("agent_steps", "wall_s", "episode_return")}
            facts["worst_parity"] = max(facts["worst_parity"], as_finite(learned.parity.max_log_ratio))
            with signals.held():  # a line and the snapshot it belongs to
                saver.log(metrics)
                saver.offer(take_snapshot(update, agent, learner, collector, facts))
            for sink in sinks:
                sink.log(metrics, metrics["agent_steps"])
            for warning in watch.look(learned.parity, metrics):
                progress.message(warning)
            if update == 1 and settings.debug.shapes:
                for line in describe_update(policy, experience, learned):
                    progress.message(line)
            progress.update(metrics)
            if update == plan.updates or (trainer.checkpoint_interval and update % trainer.checkpoint_interval == 0):
                saver.write(last=update == plan.updates)
    summary = {
        "agent_steps": facts["agent_steps"],
        "updates": max(plan.updates, facts["update"]),
        "wall_s": facts["wall_s"],
        "sps": facts["agent_steps"] / max(facts["wall_s"], 1e-9),
        "episode_return_mean": collector.episodes.mean_return,
        "episode_length_mean": collector.episodes.mean_length,
        "episodes": collector.episodes.count,
        "parity_max_abs_logratio": facts["worst_parity"],
        "resumed": facts["resumed"],
        "exact": facts["exact"],
    }
    run.write_summary(summary)
    return summary


def _what_is_saved(settings: Settings, run: RunFolder) -> str:
    if not run.saved:
        return "; nothing was saved."
    word = f"run={run.path.name}" + (f" runs_dir={settings.runs_dir}" if settings.runs_dir != "runs" else "")
    return f". The run is saved up to update {run.saved}; `holdfast train {word}` goes on with it."


def as_finite(size: float) -> float:
    """For a checkpoint's facts: JSON has no infinity, and what is not a number is at least as bad."""
    return size if math.isfinite(size) else sys.float_info.max


def threads_that_pay(policy: Policy, plan: BatchPlan) -> int:
    """One thread for small networks, as many as torch takes by itself for large ones.

    Threads meet after every operation, and one that has to wait for a busy core holds up all: on a loaded two-core machine the quick
    start ran at 630 steps/s with two threads and 3,200 with one. Decided by size alone, because the number of threads changes rounding.
    """
    operations = 6 * plan.minibatch_size * sum(p.numel() for p in policy.parameters())  # forward and backward
    return 1 if operations < SMALL_WORK else ALL_THREADS


def make_experience(settings: Settings, policy: Policy, plan: BatchPlan, num_slots: int) -> Experience:
    actions = policy.spec.actions
    return Experience(
        {**policy.get_agent_experience_spec(), keys.ACTIONS: (actions.shape, actions.dtype)},
        num_slots,
        plan.horizon,
        plan.segments_per_slot,
        policy.state_shapes,
        burn_in=settings.trainer.burn_in,
        device=settings.device,
        poison=settings.debug.poison,
    )


def absorb_observations(policy: Policy, experience: Experience) -> None:
    """Between batches, and only there, running statistics may move."""
    policy.absorb(experience.whole().arrivals[keys.OBS].flatten(0, 1))


def _figures(collector: Collector, rollout: Rollout, learned: Update, seconds: float) -> dict[str, float | None]:
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
    }


def _set_up(settings: Settings) -> None:
    try:
        torch.empty(0, device=settings.device)
        torch.Generator(settings.device)
    except (RuntimeError, AssertionError) as error:
        said = str(error).splitlines()[0]
        why = "torch knows no such device" if said.startswith("Expected one of") else said  # it lists them all
        there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))])
        raise SettingsError(
            f"device={settings.device} is not there: {why.rstrip('.')}.\nDevices here: {there}."
        ) from None
    keep_freed_memory()
    # Orthogonal weights round differently with more threads: drawn with one they are the same on any machine, and
    # whatever ran before in this process.
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    # for whatever in a world or a policy of a user's own draws from them
    random.seed(settings.seed)
    np.random.seed(settings.seed)
