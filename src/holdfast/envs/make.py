"""Build the world that the settings describe."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.config.sections import EnvSection
from holdfast.config.settings import TrainerSettings
from holdfast.custom_code import forked_child_ended
from holdfast.envs.world import World
from holdfast.errors import SettingsError

DEFAULTS = TrainerSettings()


def make_world(
    settings: EnvSection,
    num_workers: int = 0,
    env_ids: range | None = None,
    *,
    worker_timeout: float = DEFAULTS.worker_timeout,
    worker_failures: int = DEFAULTS.worker_failures,
    on_failure: Callable[[str], None] | None = None,
) -> World:
    """Build the environments `env_ids` (None: all env.num_envs), in this process or in `num_workers` worker processes.

    `on_failure` is called with a message whenever a worker failed and was restarted (None: log a warning).
    """
    env_ids = range(settings.num_envs) if env_ids is None else env_ids
    if num_workers == 0:
        with forked_child_ended():
            return settings.build(env_ids)
    if settings.single_generator:
        raise SettingsError(
            f"trainer.num_workers={num_workers} with env={settings.name}: all environments share one random "
            "generator,\nso results would depend on the number of workers. "
            f"Use trainer.num_workers=0, or {settings.one_by_one}."
        )
    from holdfast.envs.workers import WorkerWorld

    return WorkerWorld(
        settings, num_workers, env_ids, timeout=worker_timeout, failures=worker_failures, on_failure=on_failure
    )
