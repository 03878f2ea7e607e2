"""Build a run's agent, with new weights or with those of another run."""

from __future__ import annotations

import logging
from pathlib import Path

from holdfast.checkpoint import Checkpoint, first_usable, load_checkpoint, newest_first
from holdfast.config.settings import Settings
from holdfast.errors import SettingsError
from holdfast.policies import MettaAgent, OwnPolicySettings
from holdfast.runs.files import as_checkpoint_error
from holdfast.runs.folder import CHECKPOINTS, runs_folder
from holdfast.spec import WorldSpec
from holdfast.trainer.try_out import try_out

logger = logging.getLogger(__name__)


def make_agent(settings: Settings, spec: WorldSpec) -> MettaAgent:
    """Build an agent for this world, with the weights of policy.weights if set."""
    if settings.policy.weights:
        return _with_weights_of(settings.policy.weights, settings, spec)
    agent = MettaAgent(settings.policy, spec)
    if isinstance(settings.policy, OwnPolicySettings):
        try_out(agent.policy, settings.policy.agent_word)
    return agent


def _with_weights_of(source: str, settings: Settings, spec: WorldSpec) -> MettaAgent:
    """Build the agent with another run's weights; features and actions that are new in this world start untrained."""
    checkpoint = _load_weights(source, runs_folder(settings))
    try:
        with as_checkpoint_error(f"policy.weights={source}: the checkpoint does not hold an agent"):
            agent = MettaAgent(settings.policy, WorldSpec.from_json(checkpoint.facts["world"]))
            agent.take(checkpoint.facts["agent"], checkpoint.tensors["policy"])
    except SettingsError as error:
        raise SettingsError(f"policy.weights={source}: {error}") from error
    new = agent.initialize_to_world(spec, learn=True)
    if new:
        logger.info("policy.weights: new in this world, to be learned: %s", ", ".join(new))
    return agent


def _load_weights(source: str, runs_dir: Path) -> Checkpoint:
    """Load a checkpoint by its path, or the newest usable one of a run, by its path or its name below `runs_dir`."""
    for path in (Path(source).expanduser(), runs_dir / source):
        is_checkpoint = (path / "manifest.json").is_file()
        found = first_usable([path] if is_checkpoint else newest_first(path / CHECKPOINTS), load_checkpoint)
        if found:
            return found[1]
    raise SettingsError(f"policy.weights={source}: no checkpoint there. Name a run, such as runs/first.")
