"""Where a run's agent comes from: fresh weights, or those of another run."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.checkpoint import load_checkpoint, newest_checkpoint
from holdfast.config.settings import Settings
from holdfast.errors import SettingsError
from holdfast.policies import MettaAgent
from holdfast.spec import WorldSpec


def make_agent(settings: Settings, spec: WorldSpec) -> MettaAgent:
    """An agent for this world. With policy.weights it knows what that run learned, and learns what is new here."""
    if not settings.policy.weights:
        return MettaAgent(settings.policy, spec)
    source = find_checkpoint(settings.policy.weights)
    loaded = load_checkpoint(source)
    agent = MettaAgent(settings.policy, WorldSpec.from_json(loaded.facts["world"]))
    try:
        agent.take(loaded.facts["agent"], loaded.tensors["policy"])
    except SettingsError as error:
        raise SettingsError(f"policy.weights={settings.policy.weights}: {error}") from error
    new = agent.initialize_to_world(spec, learn=True)
    if new:
        say(f"new here, to be learned: {', '.join(new)}")
    return agent


def find_checkpoint(text: str) -> Path:
    """A checkpoint by its own folder, or the newest of a run."""
    path = Path(text).expanduser()
    if (path / "manifest.json").is_file():
        return path
    newest = newest_checkpoint(path / "checkpoints", on_damaged=lambda error: say(f"passed over: {error}"))
    if newest is None:
        raise SettingsError(
            f"policy.weights={text}: there is no checkpoint. Give the folder of a run, such as runs/first."
        )
    return newest


def say(text: str) -> None:
    print(f"policy.weights: {text}", file=sys.stderr)
