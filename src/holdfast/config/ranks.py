"""How many processes (ranks) compute a run, and how many shards it has."""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.config.settings import Settings
from holdfast.errors import SettingsError


def own_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of this rank, as torchrun sets it; 0 without torchrun."""
    return _number("RANK", environment, 0)


def started_ranks(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of ranks that torchrun started, of which this process is one; 1 without torchrun."""
    return _number("WORLD_SIZE", environment, 1) if "RANK" in environment else 1


def plan_ranks(settings: Settings, started: int) -> Settings:
    """Return the settings with numbers for trainer.ranks and trainer.shards; raise SettingsError if they do not fit.

    started: the number of ranks that were started already; 1 if this process may start them.
    """
    trainer, num_envs = settings.trainer, settings.env.num_envs
    if started > 1:
        ranks, origin = started, f"{started} ranks were started"
    elif trainer.ranks == "auto":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        limit = trainer.shards or num_envs
        ranks = max(n for n in range(1, min(cores, limit) + 1) if limit % n == 0)
        origin = f"trainer.ranks=auto gives {ranks} ranks"
    else:
        ranks = int(trainer.ranks)
        origin = f"trainer.ranks={ranks}"
    shards = trainer.shards or ranks
    if shards % ranks:
        raise SettingsError(
            f"{origin}, which does not divide the {shards} shards of the run (trainer.shards).\n"
            f"Use {' or '.join(str(n) for n in range(1, shards + 1) if shards % n == 0)} ranks."
        )
    if num_envs % shards:
        raise SettingsError(
            f"{origin} and the run has {shards} shards, which must divide env.num_envs, which is {num_envs}.\n"
            f"Use env.num_envs={-(-num_envs // shards) * shards}, or fewer ranks."
        )
    if shards > 1 and settings.env.single_generator:
        raise SettingsError(
            f"env={settings.env.name}: all environments share one random generator, so they cannot be divided into "
            f"{shards} shards.\nUse one rank and trainer.shards=1, or {settings.env.one_by_one}."
        )
    if ranks > 1 and settings.device.startswith("cuda:"):
        raise SettingsError(f"device={settings.device}: {ranks} ranks need a GPU each. Use device=cuda.")
    planned = trainer.model_copy(update={"shards": shards, "ranks": str(ranks)})
    return settings.model_copy(update={"trainer": planned})


def _number(name: str, environment: Mapping[str, str], default: int) -> int:
    text = environment.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise SettingsError(f"the environment variable {name} is {text[:40]!r}; torchrun sets it to a number.")
    return int(text)
