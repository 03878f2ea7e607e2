"""Evaluation: play new episodes without learning. Each episode has its own seed and starts with zero memory."""

from __future__ import annotations

import itertools
import logging
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from holdfast.checkpoint import best_first, first_usable, list_checkpoints, load_policy, newest_first
from holdfast.config import load_run_settings, load_run_world
from holdfast.config.sections import EnvSection
from holdfast.config.settings import Settings
from holdfast.envs import make_world
from holdfast.errors import HoldfastError, SettingsError, printable
from holdfast.policies import MettaAgent, OwnPolicySettings, Policy, Sampling
from holdfast.rollout import Episode, EpisodeTracker, first_inputs, last_actions
from holdfast.runs import resume_words
from holdfast.runs.folder import CHECKPOINTS, CONFIG
from holdfast.runs.json_data import as_checkpoint_error
from holdfast.spec import WorldSpec, keys

logger = logging.getLogger(__name__)
MAX_ENVS = 256
MAX_EPISODE_STEPS = 100_000


@dataclass(frozen=True)
class EvaluationResult:
    episodes: int
    return_mean: float
    return_std: float
    length_mean: float
    returns: list[float]
    checkpoint: str = ""


def evaluate_run(
    run_dir: Path,
    episodes: int = 20,
    greedy: bool = True,
    seed: int = 1_000_000,
    checkpoint: str | None = None,
    max_steps: int = MAX_EPISODE_STEPS,
    env: EnvSection | None = None,
    py_agent: str | None = None,
) -> EvaluationResult:
    """Evaluate a run's newest usable checkpoint, or `checkpoint`, on new episodes of the run's world, or of `env`.

    py_agent: FILE.py:CLASS, required if the run was trained with a custom policy class. It is not read from the run
    folder, because a folder from somebody else could name any code.
    """
    env = load_run_world(run_dir / CONFIG) if env is None else env
    agent, _, path = load_agent(run_dir, checkpoint, py_agent)
    if new := agent.initialize_to_world(env.describe(), learn=False):
        logger.warning(
            "the policy was not trained with these features or actions of the world, so they are ignored: %s",
            ", ".join(new),
        )
    result = evaluate(agent.policy, env, episodes, seed, greedy, max_steps=max_steps)
    return replace(result, checkpoint=path.name)


def load_agent(
    run_dir: Path, checkpoint: str | None = None, py_agent: str | None = None
) -> tuple[MettaAgent, Settings, Path]:
    """Load the agent from a run's newest usable checkpoint, from a named one, or from the "best" (highest mean return).

    Return the agent, the run's settings and the checkpoint's path.
    """
    settings = _with_code(load_run_settings(run_dir / CONFIG), py_agent, run_dir)

    def restore(path: Path) -> MettaAgent:
        loaded = load_policy(path)
        try:
            with as_checkpoint_error(f"{path}: does not match the agent in {run_dir / CONFIG}"):
                world = WorldSpec.from_json(loaded.facts["world"])
                return MettaAgent.restore(settings.policy, world, loaded.facts["agent"], loaded.tensors["policy"])
        except SettingsError as error:
            if py_agent is None or str(error).startswith("py_agent="):
                raise
            raise SettingsError(f"--py-agent {printable(py_agent, 200)}: does not fit {path}: {error}") from error

    # A run of somebody else must not start a compiler, and a compiled policy computes the same.
    settings = settings.model_copy(update={"policy": settings.policy.model_copy(update={"compile": False})})
    folder = run_dir / CHECKPOINTS
    if checkpoint == "best":
        paths = best_first(folder)
    elif checkpoint:  # compare names, so that `..` cannot lead to another run
        paths = [path for path in list_checkpoints(folder) if path.name == checkpoint]
    else:
        paths = newest_first(folder)
    found = first_usable(paths, restore)
    if found is None:
        names = ", ".join(path.name for path in list_checkpoints(folder)[-5:])
        wanted = f"checkpoint {printable(checkpoint)}" if checkpoint else "checkpoint"
        raise SettingsError(
            f"{run_dir} has no {wanted}. {f'Checkpoints there: {names}.' if names else _when_saved(settings, run_dir)}"
        )
    return found[1], settings, found[0]


def _when_saved(settings: Settings, run_dir: Path) -> str:
    """Return when a run without a checkpoint gets its first one, and the command that continues it."""
    interval = settings.trainer.checkpoint_interval
    due = f"after {interval} updates (trainer.checkpoint_interval) and " if interval else ""
    here = settings.model_copy(update={"run": run_dir.name, "runs_dir": str(run_dir.parent)})
    return f"The first is written {due}at the end of the run. To continue it: holdfast train {resume_words(here, here)}"


def _with_code(settings: Settings, py_agent: str | None, run_dir: Path) -> Settings:
    """Return the run's settings with the custom code that the user named, which may be in another place than the run's."""
    policy = settings.policy
    if not isinstance(policy, OwnPolicySettings):
        if py_agent is None:
            return settings
        raise SettingsError(
            f"--py-agent {printable(py_agent)}: has no effect, because {run_dir} was trained with "
            f"{policy.agent_word}. Leave it out."
        )
    if py_agent is None:
        raise SettingsError(
            f"{run_dir} was trained with {policy.agent_word}, which is custom code. If you trust it, add:\n"
            f"--py-agent {policy.py_agent}\nor the place where that file is now."
        )
    try:
        named = OwnPolicySettings.model_validate({**policy.model_dump(), "py_agent": py_agent})
    except ValidationError:
        raise SettingsError(
            f"--py-agent {printable(py_agent)}: needs FILE.py:CLASS, such as ./mine.py:MyPolicy."
        ) from None
    return settings.model_copy(update={"policy": named})


@torch.no_grad()
def evaluate(
    policy: Policy,
    env: EnvSection,
    episodes: int,
    seed: int,
    greedy: bool = True,
    num_envs: int | None = None,
    max_steps: int = MAX_EPISODE_STEPS,
) -> EvaluationResult:
    """Play at least `episodes` episodes, the same number in every slot, so that short episodes are not overcounted.

    The policy's memory and random state are left unchanged. An episode longer than `max_steps` raises HoldfastError,
    because evaluation would never end in a world without a time limit.
    """
    finished: list[Episode] = []
    with policy.set_aside(Sampling(greedy, torch.Generator().manual_seed(seed))):
        enough = math.ceil(episodes / env.describe().agents_per_env)
        changes: dict[str, Any] = {"num_envs": num_envs or min(enough, MAX_ENVS)}
        if "desync" in type(env).model_fields:
            changes["desync"] = False  # desync shortens the first episode of each slot, which would bias the result
        with make_world(env.model_copy(update=changes)) as world:
            per_slot = math.ceil(episodes / world.num_slots)
            # per slot: number of finished episodes, and the step at which the current episode began
            counts, began = np.zeros((2, world.num_slots), np.int64)
            tracker = EpisodeTracker(world.num_slots)
            spec = world.world_spec
            inputs, state = first_inputs(spec, *world.reset(seed=seed)), policy.initial_state(world.num_slots)
            for step in itertools.count():
                if counts.min() >= per_slot:
                    break
                endless = (counts < per_slot) & (step - began >= max_steps)
                if endless.any():
                    raise HoldfastError(
                        f"{env.name}: the episode of slot {endless.argmax()} has not ended after {max_steps:,} steps.\n"
                        "Give the world a time limit, or allow longer episodes with --max-steps."
                    )
                acted = policy.act({key: torch.from_numpy(x)[None] for key, x in inputs.items()}, state)
                state = acted.state
                actions = acted.actions[0].numpy()
                obs, rewards, terminated, truncated, info = world.step(actions)
                inputs = {keys.OBS: obs, keys.REWARDS: rewards, keys.DONES: terminated, keys.TRUNCATEDS: truncated}
                inputs[keys.LAST_ACTIONS] = last_actions(spec, actions, info["valid"])
                if keys.ACTION_MASK in info:
                    inputs[keys.ACTION_MASK] = info[keys.ACTION_MASK]
                for episode in tracker.step(rewards, terminated | truncated, info["valid"]):
                    if counts[episode.slot] < per_slot:
                        finished.append(episode)
                    counts[episode.slot] += 1
                    began[episode.slot] = step + 1
    returns = [e.episode_return for e in finished]
    mean_length = float(np.mean([e.length for e in finished]))
    return EvaluationResult(len(returns), float(np.mean(returns)), float(np.std(returns)), mean_length, returns)
