"""Evaluation: play new episodes of a run's world with one of its checkpoints."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from holdfast.checkpoint import best_first, first_usable, list_checkpoints, load_policy, newest_first
from holdfast.config import load_run_settings, load_run_world
from holdfast.config.sections import EnvSection
from holdfast.config.settings import Settings
from holdfast.errors import SettingsError, printable
from holdfast.policies import MettaAgent, OwnPolicySettings, Policy
from holdfast.rollout import mean_info, play_episodes
from holdfast.rollout.play import MAX_EPISODE_STEPS
from holdfast.runs import resume_words
from holdfast.runs.folder import CHECKPOINTS, CONFIG
from holdfast.runs.json_data import as_checkpoint_error
from holdfast.spec import WorldSpec

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EvaluationResult:
    episodes: int
    return_mean: float
    return_std: float
    length_mean: float
    returns: list[float]
    checkpoint: str = ""
    info: dict[str, float] = field(
        default_factory=dict
    )  # means of what the environments reported at the end of episodes


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
    returns = [e.episode_return for e in finished]
    mean_length = float(np.mean([e.length for e in finished]))
    mean, std = float(np.mean(returns)), float(np.std(returns))
    return EvaluationResult(len(returns), mean, std, mean_length, returns, info=mean_info(finished, prefix=""))
