"""Load the trained agent of a run. This needs neither the trainer nor the run's world."""

from __future__ import annotations

import logging
from os import PathLike, fspath
from pathlib import Path

import torch
from pydantic import ValidationError

from holdfast.checkpoint import best_first, first_usable, list_checkpoints, load_policy, newest_first
from holdfast.config import load_run_settings
from holdfast.config.sections import EnvSection
from holdfast.config.settings import Settings
from holdfast.deploy.agent import Agent
from holdfast.errors import SettingsError, first_line, printable
from holdfast.policies import MettaAgent, OwnPolicySettings, Policy
from holdfast.runs import find_run, resume_words
from holdfast.runs.folder import CHECKPOINTS, CONFIG
from holdfast.runs.json_data import as_checkpoint_error
from holdfast.spec import WorldSpec

logger = logging.getLogger(__name__)


def load(
    run: str | PathLike[str],
    checkpoint: str | None = None,
    *,
    policy: str | type[Policy] | None = None,
    device: str = "cpu",
    seed: int = 0,
    runs_dir: str | PathLike[str] = "runs",
) -> Agent:
    """Load the trained agent of a run, to act in a loop of your own.

    run: the run's folder, or its name in `runs_dir`.
    checkpoint: a name such as "00000050", or "best" (highest mean return); None: the newest.
    policy: the class of a custom policy, or FILE.py:CLASS. It is not read from the run folder, because a folder from somebody
        else could name any code.
    seed: for the actions that `greedy=False` samples.
    """
    check_device(device)
    folder = find_run(fspath(run), Path(runs_dir))
    with torch.random.fork_rng(devices=[]):  # building the agent draws initial weights
        agent, _, path = load_agent(folder, checkpoint, policy)
    return Agent(agent.policy.to(device), device, seed, path.name)


def check_device(device: str) -> None:
    """Raise SettingsError if torch cannot use this device."""
    try:
        torch.empty(0, device=device)
        torch.Generator(device)
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error)
        if reason.startswith("Expected one of"):
            reason = "torch has no device of this name"  # torch's message lists every device type, available or not
        elif reason.startswith("Could not run"):
            reason = "this torch was built without it"  # torch's message lists every backend
        available = ", ".join(["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))])
        raise SettingsError(
            f"device={device} is not available: {reason.rstrip('.')}.\nAvailable on this machine: {available}."
        ) from None


def load_agent(
    run_dir: Path, checkpoint: str | None = None, py_agent: str | type[Policy] | None = None
) -> tuple[MettaAgent, Settings, Path]:
    """Load the agent from a run's newest usable checkpoint, from a named one, or from the "best" (highest mean return).

    py_agent: FILE.py:CLASS, or the class, of a custom policy. Return the agent, the run's settings and the checkpoint's path.
    """
    settings = _with_code(load_run_settings(run_dir / CONFIG), py_agent, run_dir)

    def restore(path: Path) -> MettaAgent:
        loaded = load_policy(path)
        try:
            with as_checkpoint_error(f"{path}: does not match the agent in {run_dir / CONFIG}"):
                world = WorldSpec.from_json(loaded.facts["world"])
                agent = MettaAgent.restore(settings.policy, world, loaded.facts["agent"], loaded.tensors["policy"])
                Agent(agent.policy)  # fails if the spaces in this checkpoint are damaged: an older one may be sound
                return agent
        except SettingsError as error:
            if py_agent is None or str(error).startswith("py_agent="):
                raise
            raise SettingsError(f"{_named(py_agent)}: does not fit {path}: {error}") from error

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
        if checkpoint == "best" and names:
            wanted = "best checkpoint: no episode had ended when they were written"
        raise SettingsError(
            f"{run_dir} has no {wanted}. {f'Checkpoints there: {names}.' if names else _when_saved(settings, run_dir)}"
        )
    return found[1], settings, found[0]


def load_agent_for_world(
    run_dir: Path, env: EnvSection, checkpoint: str | None = None, py_agent: str | type[Policy] | None = None
) -> tuple[MettaAgent, Settings, Path]:
    """Load the agent as `load_agent` does, to act in this world. What it does not know of the world is ignored and reported."""
    agent, settings, path = load_agent(run_dir, checkpoint, py_agent)
    if new := agent.initialize_to_world(env.describe(), learn=False):
        logger.warning(
            "the policy was not trained with these features or actions of the world, so they are ignored: %s",
            ", ".join(new),
        )
    return agent, settings, path


def _when_saved(settings: Settings, run_dir: Path) -> str:
    """Return when a run without a checkpoint gets its first one, and the command that continues it."""
    interval = settings.trainer.checkpoint_interval
    due = f"after {interval} updates (trainer.checkpoint_interval) and " if interval else ""
    here = settings.model_copy(update={"run": run_dir.name, "runs_dir": str(run_dir.parent)})
    return f"The first is written {due}at the end of the run. To continue it: holdfast train {resume_words(here, here)}"


def _with_code(settings: Settings, py_agent: str | type[Policy] | None, run_dir: Path) -> Settings:
    """Return the run's settings with the custom code that the user named, which may be in another place than the run's."""
    policy = settings.policy
    if not isinstance(policy, OwnPolicySettings):
        if py_agent is None:
            return settings
        raise SettingsError(
            f"{_named(py_agent)}: has no effect, because {run_dir} was trained with {policy.agent_word}. Leave it out."
        )
    if py_agent is None:
        raise SettingsError(
            f"{run_dir} was trained with {policy.agent_word}, which is custom code. If you trust it, add:\n"
            f"--py-agent {policy.py_agent}\nor the place where that file is now. In Python: policy={policy.py_agent!r}, or "
            "the class."
        )
    if isinstance(py_agent, type):
        if not issubclass(py_agent, Policy):
            raise SettingsError(f"{_named(py_agent)}: a policy must subclass holdfast.policies.Policy.")
        named = policy.with_source(py_agent)
    else:
        try:
            named = OwnPolicySettings.model_validate({**policy.model_dump(), "py_agent": py_agent})
        except ValidationError:
            raise SettingsError(f"{_named(py_agent)}: needs FILE.py:CLASS, such as ./mine.py:MyPolicy.") from None
    return settings.model_copy(update={"policy": named})


def _named(py_agent: str | type[Policy]) -> str:
    """Return the custom policy as the user named it, for messages."""
    return f"policy={py_agent.__name__}" if isinstance(py_agent, type) else f"--py-agent {printable(py_agent, 200)}"
