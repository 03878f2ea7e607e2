"""Evaluation: a collector without learning. It starts from a blank memory, and every episode from its own seed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from holdfast.checkpoint import CheckpointError, best_checkpoint, load_checkpoint, newest_checkpoint
from holdfast.config import load_run_settings
from holdfast.config.settings import EnvSection, Settings
from holdfast.envs import describe, make_world
from holdfast.errors import HoldfastError, SettingsError
from holdfast.policies import MettaAgent, OwnPolicySettings, Policy, Sampling
from holdfast.rollout import Episode, EpisodeTracker, arrivals, first_arrivals
from holdfast.runs.files import fitting
from holdfast.spec import WorldSpec, keys

MOST_ENVS = 256
LONGEST_EPISODE = 100_000


@dataclass(frozen=True)
class EvaluationResult:
    episodes: int
    return_mean: float
    return_std: float
    length_mean: float
    returns: list[float]
    checkpoint: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def evaluate_run(
    run_dir: Path,
    episodes: int = 20,
    greedy: bool = True,
    seed: int = 1_000_000,
    checkpoint: str | None = None,
    max_steps: int = LONGEST_EPISODE,
    env: EnvSection | None = None,
    py_agent: str | None = None,
    on_damaged: Callable[[CheckpointError], None] | None = None,
    on_new_names: Callable[[list[str]], None] | None = None,
) -> EvaluationResult:
    """Evaluate a run's newest checkpoint, or the one named, on fresh episodes of its own world, or of another.

    py_agent: the run's own, if it is code of a user's: a run folder is not trusted to name it.
    `on_damaged` hears of newer checkpoints that were passed over because they do not verify; `on_new_names` of
    features and actions the policy does not know, which it will not see and not take.
    """
    agent, settings, path = load_agent(run_dir, checkpoint, py_agent, on_damaged)
    env = settings.env if env is None else env
    new = agent.initialize_to_world(describe(env), learn=False)
    if new and on_new_names is not None:
        on_new_names(new)
    result = evaluate(agent.policy, env, episodes, seed, greedy, max_steps=max_steps)
    return EvaluationResult(**{**asdict(result), "checkpoint": path.name})


def load_agent(
    run_dir: Path,
    checkpoint: str | None = None,
    py_agent: str | None = None,
    on_damaged: Callable[[CheckpointError], None] | None = None,
) -> tuple[MettaAgent, Settings, Path]:
    """The agent of a run's newest checkpoint, or of the one named, with the run's settings and where it was found.

    "best" is the one with the highest mean return at the time it was saved.
    """
    folder = run_dir / "checkpoints"
    if checkpoint == "best":
        path = best_checkpoint(folder, on_damaged)
    else:
        path = folder / checkpoint if checkpoint else newest_checkpoint(folder, on_damaged)
    if path is None or path.parent != folder or not path.exists():  # not one of another run by way of ..
        there = ", ".join(sorted(p.name for p in folder.glob("[0-9]*"))[-5:]) or "none"
        raise SettingsError(
            f"{run_dir} has no checkpoint {checkpoint or ''}".rstrip() + f". Checkpoints there: {there}."
        )
    settings = load_run_settings(run_dir / "config.yaml")
    if isinstance(settings.policy, OwnPolicySettings) and py_agent != settings.policy.py_agent:
        raise SettingsError(
            f"{run_dir} was trained with {settings.policy.agent_word}, which is code. If you trust it, add:\n"
            f"--py-agent {settings.policy.py_agent}"
        )
    loaded = load_checkpoint(path)
    with fitting(f"{path}: not of the agent in {run_dir / 'config.yaml'}"):
        world = WorldSpec.from_json(loaded.facts["world"])
        agent = MettaAgent.restore(settings.policy, world, loaded.facts["agent"], loaded.tensors["policy"])
    return agent, settings, path


@torch.no_grad()
def evaluate(
    policy: Policy,
    env: EnvSection,
    episodes: int,
    seed: int,
    greedy: bool = True,
    num_envs: int | None = None,
    max_steps: int = LONGEST_EPISODE,
) -> EvaluationResult:
    """Mean return of at least `episodes` episodes, the same number from every slot, so that short ones count no more than long ones.

    The policy's own memory and random state are put aside and stay as they were. An episode longer than `max_steps`
    is an error: a world without a time limit would be played for ever.
    """
    finished: list[Episode] = []
    with policy.set_aside(Sampling(greedy, torch.Generator().manual_seed(seed))):
        enough = math.ceil(episodes / describe(env).agents_per_env)
        changes: dict[str, Any] = {"num_envs": num_envs or min(enough, MOST_ENVS)}
        if "desync" in type(env).model_fields:
            changes["desync"] = False  # it cuts first episodes short, and those are the ones played here
        with make_world(env.model_copy(update=changes)) as world:
            per_slot = math.ceil(episodes / world.num_slots)
            counts = np.zeros(world.num_slots, np.int64)
            began = np.zeros(world.num_slots, np.int64)  # step at which each slot's episode began
            tracker = EpisodeTracker(world.num_slots)
            arrived = first_arrivals(*world.reset(seed=seed))
            for step in itertools.count():
                if counts.min() >= per_slot:
                    break
                endless = (counts < per_slot) & (step - began >= max_steps)
                if endless.any():
                    raise HoldfastError(
                        f"{env.name}: the episode of slot {endless.argmax()} has not ended after {max_steps:,} steps.\n"
                        "Give the world a time limit, or allow longer episodes with --max-steps."
                    )
                td = TensorDict({k: torch.from_numpy(x) for k, x in arrived.items()}, batch_size=[world.num_slots])
                actions = policy(td)[keys.ACTIONS].numpy()
                obs, rewards, terminated, truncated, info = world.step(actions)
                arrived = arrivals(obs, rewards, terminated, truncated, info)
                for episode in tracker.step(rewards, terminated | truncated, info["valid"]):
                    if counts[episode.slot] < per_slot:
                        finished.append(episode)
                    counts[episode.slot] += 1
                    began[episode.slot] = step + 1
    returns = [e.episode_return for e in finished]
    return EvaluationResult(
        episodes=len(returns),
        return_mean=float(np.mean(returns)),
        return_std=float(np.std(returns)),
        length_mean=float(np.mean([e.length for e in finished])),
        returns=returns,
    )
