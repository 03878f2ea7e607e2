"""Play episodes without learning. Each episode has its own seed and starts with zero memory."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from holdfast.config.sections import EnvSection
from holdfast.envs import World, make_world
from holdfast.errors import HoldfastError
from holdfast.policies import Policy, Sampling
from holdfast.policies.tensordict_api import Acted, Inputs
from holdfast.recurrence import State
from holdfast.rollout.collector import first_inputs, last_actions
from holdfast.rollout.episodes import Episode, EpisodeTracker
from holdfast.spec import keys

MAX_ENVS = 256
MAX_EPISODE_STEPS = 100_000

Act = Callable[[Inputs, State], Acted]
Watch = Callable[[World, Mapping[str, np.ndarray]], None]


@torch.no_grad()
def play_episodes(
    policy: Policy,
    env: EnvSection,
    episodes: int,
    seed: int,
    greedy: bool = True,
    num_envs: int | None = None,
    max_steps: int = MAX_EPISODE_STEPS,
    device: torch.device | str = "cpu",
    act: Act | None = None,
    watch: Watch | None = None,
    **workers: Any,
) -> list[Episode]:
    """Play at least `episodes` episodes, the same number in every slot, so that short episodes are not overcounted.

    The policy's memory and all random states are left unchanged. An episode longer than `max_steps` raises
    HoldfastError, because the evaluation would never end in a world without a time limit.
    act: used instead of `policy.act`. watch: called with the world and the inputs [slots, ...] before each step, and at the end.
    workers: arguments of `make_world`.
    """
    finished: list[Episode] = []
    act = act or policy.act
    sampling = Sampling(greedy, torch.Generator(device).manual_seed(seed))
    with random_states_kept(seed), policy.set_aside(sampling):
        enough = math.ceil(episodes / env.describe().agents_per_env)
        changes: dict[str, Any] = {"num_envs": num_envs or env.num_ready or min(enough, MAX_ENVS)}
        if "desync" in type(env).model_fields:
            changes["desync"] = False  # desync shortens the first episode of each slot, which would bias the result
        with make_world(env.model_copy(update=changes), **workers) as world:
            per_slot = math.ceil(episodes / world.num_slots)
            # per slot: number of finished episodes, and the step at which the current episode began
            counts, began = np.zeros((2, world.num_slots), np.int64)
            tracker = EpisodeTracker(world.num_slots)
            spec = world.world_spec
            inputs, state = first_inputs(spec, *world.reset(seed=seed)), policy.initial_state(world.num_slots)
            for step in itertools.count():
                if watch is not None:
                    watch(world, inputs)
                if counts.min() >= per_slot:
                    break
                endless = (counts < per_slot) & (step - began >= max_steps)
                if endless.any():
                    raise HoldfastError(
                        f"{env.name}: the episode of slot {endless.argmax()} has not ended after {max_steps:,} steps.\n"
                        "Give the world a time limit, or allow longer episodes: `holdfast evaluate --max-steps`."
                    )
                acted = act({key: torch.from_numpy(x).to(device)[None] for key, x in inputs.items()}, state)
                state = acted.state
                actions = acted.actions[0].cpu().numpy()
                obs, rewards, terminated, truncated, info = world.step(actions)
                inputs = {keys.OBS: obs, keys.REWARDS: rewards, keys.DONES: terminated, keys.TRUNCATEDS: truncated}
                inputs[keys.LAST_ACTIONS] = last_actions(spec, actions, info["valid"])
                if keys.ACTION_MASK in info:
                    inputs[keys.ACTION_MASK] = info[keys.ACTION_MASK]
                ended = terminated | truncated
                for episode in tracker.step(rewards, ended, info["valid"], step, world.episode_infos):
                    if counts[episode.slot] < per_slot:
                        finished.append(episode)
                    counts[episode.slot] += 1
                    began[episode.slot] = step + 1
    return finished


@contextmanager
def random_states_kept(seed: int) -> Iterator[None]:
    """Seed the global random generators, which a custom world or policy may use, and restore their states afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
