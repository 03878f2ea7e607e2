"""Evaluation: play new episodes of a run's world with one of its checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from holdfast.config import load_run_world
from holdfast.config.sections import EnvSection
from holdfast.deploy.loading import load_agent_for_world
from holdfast.envs import episode_seed
from holdfast.errors import SettingsError
from holdfast.policies import Policy
from holdfast.rollout import Episode, mean_info, play_episodes
from holdfast.rollout.play import MAX_EPISODE_STEPS
from holdfast.runs.folder import CONFIG


@dataclass(frozen=True)
class EvaluationResult:
    """What an agent achieved in new episodes.

    returns: one per episode.
    checkpoint: the name of the checkpoint that played.
    seeds: `env.reset(seed=seeds[i])` starts the episode with `returns[i]`. Empty if single episodes cannot be seeded.
    info: means of the numbers that the environments reported at the end of episodes.
    sampled: the same with sampled actions, if both were asked for.
    """

    episodes: int
    return_mean: float
    return_std: float
    length_mean: float
    returns: list[float]
    checkpoint: str = ""
    seeds: list[int] = field(default_factory=list)
    info: dict[str, float] = field(default_factory=dict)
    sampled: EvaluationResult | None = None


def evaluate_run(
    run_dir: Path,
    episodes: int = 20,
    greedy: bool = True,
    seed: int = 1_000_000,
    checkpoint: str | None = None,
    max_steps: int = MAX_EPISODE_STEPS,
    env: EnvSection | None = None,
    py_agent: str | type[Policy] | None = None,
    both: bool = False,
) -> EvaluationResult:
    """Evaluate a run's newest usable checkpoint, or `checkpoint`, on new episodes of the run's world, or of `env`.

    both: also play with sampled actions, for `sampled` of the result; `greedy` must be true.
    py_agent: FILE.py:CLASS, or the class, if the run was trained with a custom policy class. It is not read from the run
    folder, because a folder from somebody else could name any code.
    """
    check_numbers(episodes, seed, max_steps)
    if both and not greedy:
        raise SettingsError("both=True plays greedy and sampled actions, so greedy must be True.")
    env = load_run_world(run_dir / CONFIG) if env is None else env
    agent, _, path = load_agent_for_world(run_dir, env, checkpoint, py_agent)
    result = evaluate(agent.policy, env, episodes, seed, greedy, max_steps=max_steps)
    sampled = evaluate(agent.policy, env, episodes, seed, greedy=False, max_steps=max_steps) if both else None
    return replace(result, checkpoint=path.name, sampled=sampled and replace(sampled, checkpoint=path.name))


def check_numbers(episodes: int, seed: int, max_steps: int) -> None:
    """Raise SettingsError for what cannot be played."""
    for name, value, least in (("episodes", episodes, 1), ("seed", seed, 0), ("max_steps", max_steps, 1)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not least <= value < 2**31:
            raise SettingsError(f"{name}={value!r}: needs a whole number from {least} to {2**31 - 1:,}.")


def evaluate(
    policy: Policy,
    env: EnvSection,
    episodes: int,
    seed: int,
    greedy: bool = True,
    num_envs: int | None = None,
    max_steps: int = MAX_EPISODE_STEPS,
) -> EvaluationResult:
    """Play at least `episodes` episodes, as `play_episodes` does, and return their statistics."""
    finished = play_episodes(policy, env, episodes, seed, greedy, num_envs, max_steps)
    seeds = [] if env.single_generator else _seeds(finished, seed, policy.spec.agents_per_env)
    returns = [e.episode_return for e in finished]
    mean_length = float(np.mean([e.length for e in finished]))
    mean, std = float(np.mean(returns)), float(np.std(returns))
    info = mean_info(finished, prefix="")
    return EvaluationResult(len(returns), mean, std, mean_length, returns, seeds=seeds, info=info)


def _seeds(finished: Sequence[Episode], seed: int, agents_per_env: int) -> list[int]:
    """Return the seed of the environment in each of these episodes, which are in the order in which they ended."""
    seeds, counts = [], Counter[int]()
    for episode in finished:
        seeds.append(episode_seed(seed, episode.slot // agents_per_env, counts[episode.slot]))
        counts[episode.slot] += 1
    return seeds
