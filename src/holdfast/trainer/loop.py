"""Training, top to bottom: collect, learn, look, log, save."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
import torch

from holdfast.checkpoint import flatten_optimizer, save_checkpoint
from holdfast.config.batches import BatchPlan, plan_batches
from holdfast.config.settings import Settings
from holdfast.envs import World, describe, make_world
from holdfast.errors import SettingsError
from holdfast.policies import MettaAgent, Policy
from holdfast.ppo import Experience
from holdfast.recurrence import keep_freed_memory
from holdfast.rollout import Collector, Rollout, check_experience_spec
from holdfast.spec import WorldSpec, keys
from holdfast.trainer.learner import Learner, Update
from holdfast.trainer.progress import make_progress
from holdfast.trainer.run_folder import RunFolder, check_run
from holdfast.trainer.shapes import describe_update
from holdfast.trainer.sinks import check_sinks, make_sinks
from holdfast.trainer.start import audit_first, make_agent
from holdfast.trainer.watch import Watch
from holdfast.trainer.weights import weight_figures

SMALL_WORK = 4e9  # floating point operations per minibatch
ALL_THREADS = torch.get_num_threads()  # as torch starts, before any run changes it


@dataclass(frozen=True)
class TrainResult:
    run: Path
    summary: dict[str, Any]


def train(settings: Settings) -> TrainResult:
    """Train as the settings say. Whatever can be refused is refused before a worker or a file exists."""
    spec = describe(settings.env)
    plan = plan_batches(settings.trainer, settings.env.num_envs * spec.agents_per_env)
    check_sinks(settings)
    check_run(settings)
    _set_up_torch(settings)
    agent = make_agent(settings, spec).to(settings.device)
    policy = agent.policy
    audit_first(settings)
    policy.sampling.generator = torch.Generator(settings.device).manual_seed(settings.seed)
    check_experience_spec(policy)
    torch.set_num_threads(settings.trainer.threads or threads_that_pay(policy, plan))
    with (
        make_world(
            settings.env,
            settings.trainer.num_workers,
            worker_timeout=settings.trainer.worker_timeout,
            worker_failures=settings.trainer.worker_failures,
        ) as world,
        RunFolder.create(settings) as run,
    ):
        try:
            summary = _train(settings, spec, plan, agent, world, run)
        except KeyboardInterrupt:
            print(f"Stopped. Metrics and checkpoints so far are in {run.path}.", file=sys.stderr)
            raise
    return TrainResult(run.path, summary)


def _train(
    settings: Settings, spec: WorldSpec, plan: BatchPlan, agent: MettaAgent, world: World, run: RunFolder
) -> dict[str, Any]:
    trainer, policy = settings.trainer, agent.policy
    experience = make_experience(settings, policy, plan, world.num_slots)
    collector = Collector(world, policy, experience, trainer.reset_memory_each_rollout)
    learner = Learner(policy, trainer, plan, torch.Generator().manual_seed(settings.seed))
    watch = Watch(settings)
    total = plan.updates * plan.batch_size
    title = f"{run.path.name}  {spec.name}  {settings.policy.agent_word}  seed {settings.seed}"
    process, began, worst_parity = psutil.Process(), perf_counter(), 0.0
    collector.start(settings.seed)
    with ExitStack() as stack:
        sinks = [stack.enter_context(closing(sink)) for sink in make_sinks(settings, run.path)]
        progress = stack.enter_context(make_progress(settings.progress, title, total))
        for update in range(1, plan.updates + 1):
            update_began = perf_counter()
            rollout = collector.collect()
            learned = learner.update(experience, progress=(update - 1) / plan.updates)
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
            worst_parity = max(worst_parity, learned.parity.max_log_ratio)
            run.log_metrics(metrics)
            for sink in sinks:
                sink.log(metrics, metrics["agent_steps"])
            for warning in watch.look(learned.parity, metrics):
                progress.message(warning)
            if update == 1 and settings.debug.shapes:
                for line in describe_update(policy, experience, learned):
                    progress.message(line)
            progress.update(metrics)
            if update == plan.updates or (trainer.checkpoint_interval and update % trainer.checkpoint_interval == 0):
                save(
                    run.checkpoints,
                    agent,
                    learner,
                    collector,
                    settings,
                    update,
                    metrics["agent_steps"],
                )
    wall_s = perf_counter() - began
    summary = {
        "agent_steps": total,
        "updates": plan.updates,
        "wall_s": wall_s,
        "sps": total / wall_s,
        "episode_return_mean": collector.episodes.mean_return,
        "episode_length_mean": collector.episodes.mean_length,
        "episodes": collector.episodes.count,
        "parity_max_abs_logratio": worst_parity,
    }
    run.write_summary(summary)
    return summary


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


def save(
    folder: Path,
    agent: MettaAgent,
    learner: Learner,
    collector: Collector,
    settings: Settings,
    update: int,
    agent_steps: int,
) -> Path:
    """The policy, for evaluation; optimiser, memory and random generators beside it, the larger part of a run's state."""
    optimizer, optimizer_facts = flatten_optimizer(learner.optimizer)
    policy = agent.policy
    generator = policy.sampling.generator
    assert generator is not None
    tensors = {
        "policy": {name: x.detach().contiguous() for name, x in policy.state_dict().items()},
        "optimizer": optimizer,
        "memory": {f"leaf_{i}": leaf.contiguous() for i, leaf in enumerate(policy.get_memory())},
        "rng": {"sampling": generator.get_state(), "minibatches": learner.generator.get_state()},
    }
    facts = {
        "update": update,
        "agent_steps": agent_steps,
        "episodes": collector.episodes.count,
        "world": agent.built_for.to_json(),
        "policy": settings.policy.model_dump(mode="json"),
        "agent": agent.facts(),
        "optimizer": optimizer_facts,
    }
    return save_checkpoint(folder, f"{update:08d}", tensors, facts)


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


def _set_up_torch(settings: Settings) -> None:
    try:
        torch.empty(0, device=settings.device)
        torch.Generator(settings.device)
    except (RuntimeError, AssertionError) as error:
        there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))])
        raise SettingsError(
            f"device={settings.device} is not there: {str(error).splitlines()[0]}\nDevices here: {there}."
        ) from None
    keep_freed_memory()
    # Orthogonal weights round differently with more threads: drawn with one they are the same on any machine, and
    # whatever ran before in this process.
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
