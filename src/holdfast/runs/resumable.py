"""Check whether an existing run can be resumed with these settings, and list the settings that changed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.config import Settings, load_run_settings
from holdfast.config.sections import find_policy
from holdfast.errors import SettingsError, printable
from holdfast.runs.folder import CONFIG, has_begun, runs_folder, size_of_metrics
from holdfast.runs.lock import refuse_if_in_use

# Settings that define a run and cannot change on resume. `device` is one, because random generator states depend on it.
FIXED = re.compile(r"seed|device|env\.|policy\.|trainer\.(horizon|batch_size|shards|l2_init|weight_clip)")
CODE = "policy.py_agent"
# Settings that do not affect learning. Settings in neither list may change too, and each change is reported.
FREE = re.compile(
    r"run|resume|progress|tensorboard|wandb|audit|debug\.|eval\."
    r"|trainer\.(num_workers|worker_|rank|checkpoint_interval|keep\.|on_disk_error|skipped_updates|weight_metrics_interval)"
)

# Settings that say where a run is stored and shown. Runs are not compared by them.
BOOKKEEPING = frozenset({"run", "runs_dir", "resume", "progress", "wandb.name"})


@dataclass(frozen=True)
class Resumable:
    """An existing run that these settings can resume."""

    path: Path
    changes: list[str]  # changed settings that affect learning: "trainer.lr 0.002 -> 0.001"
    metrics_bytes: int  # size when the run was found: a change means that another process resumed it


def find_resumable(settings: Settings) -> Resumable | None:
    """Return the existing run called settings.run, or None; raise SettingsError if it cannot be resumed. Writes nothing."""
    if not settings.run:
        if settings.resume == "must":
            raise SettingsError("resume=must needs the name of the run to resume. Add run=NAME.")
        return None
    path = runs_folder(settings) / settings.run
    if path.exists() and not path.is_dir():
        raise SettingsError(f"run={settings.run}: {path} is a file, not a run folder. Choose another run=NAME.")
    refuse_if_in_use(path)
    if not has_begun(path):
        if settings.resume == "must":
            raise SettingsError(f"resume=must: there is no run in {path}. Use resume=auto to start a new run.")
        return None
    if settings.resume == "never":
        raise SettingsError(
            f"run={path.name}: {path} already holds a run, and resume=never is set.\n"
            "Choose another run=NAME, use resume=auto to resume it, or delete that folder."
        )
    if not (path / CONFIG).is_file():
        raise SettingsError(
            f"run={path.name}: {path} has no {CONFIG}, so it cannot be resumed.\n"
            "Put the file back, choose another run=NAME, or delete that folder."
        )
    metrics_bytes = size_of_metrics(path)
    return Resumable(path, list_changes(load_run_settings(path / CONFIG), settings), metrics_bytes)


def list_changes(before: Settings, now: Settings) -> list[str]:
    """List changed settings that affect learning; raise SettingsError if a setting that defines the run changed."""
    old, new = dict(flatten(before.model_dump())), dict(flatten(now.model_dump()))
    for tree in (old, new):
        tree["trainer.shards"] = tree["trainer.shards"] or 1  # None before the number of ranks is known
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    # the same code may be in another place
    place_only = {CODE} if _names_code(before) and _names_code(now) else set()
    place_only |= {"env.name"} if _world_file(before) and _world_file(now) else set()
    fixed = [key for key in keys if FIXED.match(key) and key not in place_only]
    if fixed:
        # Show env.name, policy.agent and seed first: when they change, the other keys of their section follow.
        shown = sorted(fixed, key=lambda key: not key.endswith(("name", "agent", "seed")))[:2]
        was, now_is = (" and ".join(printable(f"{key}={of.get(key)}") for key in shown) for of in (old, new))
        raise SettingsError(
            f"run={now.run}: the run was started with {was}, not with {now_is}; this cannot change on resume.\n"
            f"Choose another run=NAME, or resume the run unchanged: holdfast train {resume_words(before, now)}"
        )
    return [printable(f"{key} {old.get(key)} -> {new.get(key)}", 100) for key in keys if not FREE.match(key)]


def resume_words(started: Settings, now: Settings) -> str:
    """Return the words that resume a run unchanged. Code must be named again: a run folder is not trusted to name it."""
    words = [f"run={now.run}"] + ([f"runs_dir={now.runs_dir}"] if now.runs_dir != "runs" else [])
    if started.env.module_in(started.env.name):
        words.append(f"env={started.env.name}")
    if _names_code(started):
        words.append(started.policy.agent_word)
    return " ".join(shlex.quote(printable(word, 200)) for word in words)


def _names_code(settings: Settings) -> bool:
    return find_policy("py_agent", getattr(settings.policy, "py_agent", "")) == "own"


def _world_file(settings: Settings) -> bool:
    return settings.env.module_in(settings.env.name).endswith(".py")


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (full key, value) for every leaf of nested settings, such as ("trainer.lr", 0.001)."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
