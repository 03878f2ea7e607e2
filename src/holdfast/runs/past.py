"""What a run that exists was started with, and which of it may be changed when it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.config import Settings, load_run_settings
from holdfast.errors import SettingsError
from holdfast.runs.folder import CONFIG, has_begun, runs_folder, size_of_metrics
from holdfast.runs.lock import refuse_if_in_use

# What a run is made of: other values would be another run.
FIXED = (
    "seed",
    "device",  # its generator cannot go on with another's state
    "env.",
    "policy.",
    "trainer.horizon",
    "trainer.batch_size",
    "trainer.l2_init",
    "trainer.weight_clip",
)
# What does not touch what is learned. Everything else may change, and that is said.
FREE = (
    "run",
    "runs_dir",
    "resume",
    "progress",
    "tensorboard",
    "wandb",
    "audit",
    "debug.",
    "trainer.num_workers",
    "trainer.worker_",
    "trainer.checkpoint_interval",
    "trainer.keep.",
    "trainer.on_disk_error",
    "trainer.skipped_updates",
    "trainer.weight_metrics_interval",
)


@dataclass(frozen=True)
class Past:
    """A run that can go on."""

    path: Path
    changes: list[str]  # settings that will be others from now on, in words
    metrics_bytes: int  # so that the one who takes its lock can see whether it is still that run


def find_past(settings: Settings) -> Past | None:
    """The run of this name, if there is one; SettingsError if it cannot go on with these settings. Touches nothing."""
    if not settings.run:
        if settings.resume == "must":
            raise SettingsError("resume=must: which run? Add run=NAME.")
        return None
    path = runs_folder(settings) / settings.run
    if path.exists() and not path.is_dir():
        raise SettingsError(f"run={settings.run}: {path} is a file, a run is a folder. Choose another run=NAME.")
    refuse_if_in_use(path)
    if not has_begun(path):
        if settings.resume == "must":
            raise SettingsError(f"resume=must: there is no run in {path}. resume=auto starts one.")
        return None
    if settings.resume == "never":
        raise SettingsError(
            f"run={path.name}: {path} already holds a run, and resume=never.\n"
            "Choose another run=NAME, continue it with resume=auto, or delete that folder."
        )
    if not (path / CONFIG).is_file():
        raise SettingsError(
            f"run={path.name}: {path} holds a run without its {CONFIG}, so it cannot go on.\n"
            "Put the file back, choose another run=NAME, or delete that folder."
        )
    metrics_bytes = size_of_metrics(path)
    return Past(path, compare(load_run_settings(path / CONFIG), settings), metrics_bytes)


def compare(before: Settings, now: Settings) -> list[str]:
    """What changes, in words; SettingsError if it is something a run is made of."""
    old, new = dict(flat(before.model_dump())), dict(flat(now.model_dump()))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    fixed = [key for key in keys if key.startswith(FIXED)]
    if fixed:
        # env.name and its like first: the other keys of a section differ because the section is another
        shown = sorted(fixed, key=lambda key: not key.endswith(("name", "agent", "seed")))[:2]
        was = " and ".join(f"{key}={old.get(key)}" for key in shown)
        now_is = " and ".join(f"{key}={new.get(key)}" for key in shown)
        raise SettingsError(
            f"run={now.run}: it was started with {was}, not with {now_is}; a run cannot change that.\n"
            "Choose another run=NAME, or leave these words out to continue it as it is."
        )
    return [f"{key} {old.get(key)} -> {new.get(key)}" for key in keys if not key.startswith(FREE)]


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
