"""What a run's config.yaml may not ask for, because the run may come from somebody else: the command line must name it again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.config.settings import Settings
from holdfast.config.words import Given
from holdfast.errors import SettingsError, printable

MAX_KWARGS = 10_000  # characters; a map of more cells takes seconds to build


def refuse_unnamed(settings: Settings, typed: Sequence[Given], file: Path, only: str = "") -> None:
    """Raise SettingsError if a run's file asks for something that only a word may ask for. only: prefix of the keys."""
    named = {g.key for g in typed}
    for key, value, reason in _asked(settings, file):
        group = key.rpartition(".")[0]
        if key.startswith(only) and not named & {key, group}:
            raise SettingsError(
                f"{printable(str(file), 100)}: {key} {reason}, which only the command line may ask for. "
                f"If you trust the run, add:\n{key}={printable(value, 200)}"
            )


def _asked(settings: Settings, file: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the key, its value and what it does, for all that a file may not ask for."""
    kwargs = getattr(settings.env, "kwargs", {})
    if settings.env.name.startswith("gym:GymV"):  # Gymnasium's compatibility with gym: kwargs name what is imported
        yield "env.name", settings.env.name, "imports the module of another environment"
    if "render_mode" in kwargs:
        yield "env.kwargs.render_mode", str(kwargs["render_mode"]), "opens windows and slows episodes down to real time"
    if (size := len(str(kwargs))) > MAX_KWARGS:
        yield "env.kwargs", json.dumps(kwargs, default=str), f"has {size:,} characters"
    if settings.policy.compile:
        yield "policy.compile", "true", "starts a compiler"
    if settings.trainer.threads > (cores := os.cpu_count() or 1):
        yield "trainer.threads", str(settings.trainer.threads), f"starts more threads than this machine's {cores} cores"
    if not os.path.lexists(file.parent / "checkpoints"):  # otherwise the checkpoint has both
        if settings.policy.weights:
            yield "policy.weights", settings.policy.weights, "reads another file"
        agent = getattr(settings.policy, "agent", "")
        if agent.endswith((".yaml", ".yml")):
            yield "policy.agent", agent, "reads another file"
