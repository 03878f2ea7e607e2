"""From the settings of a world to the world."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.config.settings import (
    ArenaEnv,
    CollectEnv,
    EnvSection,
    GymEnv,
    GymVectorEnv,
    MemoryEnv,
    PettingZooEnv,
    TrainerSettings,
)
from holdfast.envs.world import Buffers, World
from holdfast.errors import SettingsError
from holdfast.spec import WorldSpec

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
    """The environments `env_ids` (all of env.num_envs if None), here or spread over worker processes.

    A worker's failures that are survived are told to `on_failure` (stderr if None).
    """
    env_ids = range(settings.num_envs) if env_ids is None else env_ids
    if num_workers == 0:
        return build(settings, env_ids)
    if isinstance(settings, GymVectorEnv):
        raise SettingsError(
            f"trainer.num_workers={num_workers} with env={settings.name}: a vector environment draws its "
            "episodes from one generator,\nso results would depend on the number of workers. "
            f"Use trainer.num_workers=0, or env=gym:{settings.name.removeprefix('gymvec:')}."
        )
    from holdfast.envs.workers import WorkerWorld

    return WorkerWorld(
        settings, num_workers, env_ids, timeout=worker_timeout, failures=worker_failures, on_failure=on_failure
    )


def build(settings: EnvSection, env_ids: range, buffers: Buffers | None = None) -> World:
    """A world in this process that writes into `buffers` (its own if None)."""
    if isinstance(settings, GymEnv):
        from holdfast.envs.gymnasium_world import GymWorld

        return GymWorld(settings, env_ids, buffers)
    if isinstance(settings, PettingZooEnv):
        from holdfast.envs.pettingzoo_world import PettingZooWorld

        return PettingZooWorld(settings, env_ids, buffers)
    if isinstance(settings, GymVectorEnv):
        from holdfast.envs.vector_world import make_vector_world

        return make_vector_world(settings, env_ids)
    assert isinstance(settings, MemoryEnv | CollectEnv | ArenaEnv)
    from holdfast.envs.mettagrid import MettaGridWorld

    return MettaGridWorld(settings, env_ids, buffers)


def describe(settings: EnvSection) -> WorldSpec:
    """What a policy may know about the world; SettingsError when there is none or it is not supported."""
    if isinstance(settings, GymEnv):
        from holdfast.envs.gymnasium_world import describe_gym

        return describe_gym(settings)
    if isinstance(settings, PettingZooEnv):
        from holdfast.envs.pettingzoo_world import describe_pettingzoo

        return describe_pettingzoo(settings)
    if isinstance(settings, GymVectorEnv):
        from holdfast.envs.vector_world import describe_vector

        return describe_vector(settings)
    assert isinstance(settings, MemoryEnv | CollectEnv | ArenaEnv)
    from holdfast.envs.mettagrid import describe as describe_mettagrid

    return describe_mettagrid(settings)
