"""The shards that this process computes: for each of them a world, a collector, an experience buffer and a generator."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch

from holdfast.config.batches import BatchPlan
from holdfast.config.settings import Settings
from holdfast.envs import World, make_world
from holdfast.policies import Policy, Sampling
from holdfast.ppo import Experience
from holdfast.ranks import Shards
from holdfast.rollout import Collector, Episode, Rollout
from holdfast.trainer.process import experience_spec


@dataclass(frozen=True)
class Shard:
    """One shard of a run. Its results depend on its number and on the weights, not on the process that computes it."""

    number: int
    collector: Collector
    sampling: Sampling

    @property
    def experience(self) -> Experience:
        return self.collector.experience

    @property
    def slots(self) -> slice:
        """The slots of this shard in the run."""
        slots = self.collector.slots
        return slice(int(slots[0]), int(slots[-1]) + 1)


def make_worlds(settings: Settings, shards: Shards, stack: ExitStack) -> list[World]:
    """Build the world of each shard of this rank; `stack` closes them. Workers are divided among all shards."""
    trainer, worlds = settings.trainer, []
    num_workers = -(-trainer.num_workers // shards.count)
    for env_ids in shards.parts(settings.env.num_envs):
        worlds.append(
            stack.enter_context(
                make_world(
                    settings.env,
                    num_workers,
                    env_ids,
                    worker_timeout=trainer.worker_timeout,
                    worker_failures=trainer.worker_failures,
                )
            )
        )
    return worlds


def make_shards(
    settings: Settings, policy: Policy, plan: BatchPlan, worlds: Sequence[World], shards: Shards
) -> list[Shard]:
    """Allocate the experience buffer of each shard, and seed the generator that samples its actions."""
    made = []
    for number, world in zip(shards.own, worlds, strict=True):
        experience = make_experience(settings, policy, plan, world.num_slots)
        collector = Collector(world, policy, experience, settings.trainer.reset_memory_each_rollout)
        generator = torch.Generator(settings.device).manual_seed(shards.seed(settings.seed, number))
        made.append(Shard(number, collector, Sampling(generator=generator)))
    return made


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


class Collected(NamedTuple):
    """One rollout of all shards. The seconds are those of this rank."""

    episodes: list[Episode]
    memory_norm: float
    first_share: float
    world_s: float
    inference_s: float


def collect(made: Sequence[Shard], policy: Policy, shards: Shards) -> Collected:
    """Collect a rollout of every shard of this rank, one after the other, and merge the figures of all ranks."""
    rollouts: list[Rollout] = []
    for i, shard in enumerate(made):
        policy.sampling = shard.sampling
        with shards.noise_of(i):
            rollouts.append(shard.collector.collect())
    own = [
        {
            "episodes": [[getattr(e, f.name) for f in fields(Episode)] for e in rollout.episodes],
            "memory_norm": rollout.memory_norm,
            "first_share": rollout.first_share,
        }
        for rollout in rollouts
    ]
    found = [shard for rank in shards.gather(own) for shard in rank]
    return Collected(
        [Episode(*values) for shard in found for values in shard["episodes"]],
        sum(shard["memory_norm"] for shard in found) / len(found),
        sum(shard["first_share"] for shard in found) / len(found),
        sum(rollout.world_s for rollout in rollouts),
        sum(rollout.inference_s for rollout in rollouts),
    )


def absorb(made: Sequence[Shard], policy: Policy, shards: Shards, key: str) -> None:
    """Update the policy's running statistics with the observations of all shards, one shard after the other."""
    observations = [shard.experience.whole().inputs[key].flatten(0, 1) for shard in made]
    if shards.count == 1:
        policy.absorb(observations[0])
    elif policy.absorbs:
        everybody = shards.concat(torch.stack(observations))
        with shards.noise_of(-1):
            for obs in everybody:
                policy.absorb(obs)
