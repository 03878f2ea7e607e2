"""Test whether the episodes of a world can be replayed, that is, depend only on their seed and their actions."""

from __future__ import annotations

import numpy as np

from holdfast.config.sections import EnvSection
from holdfast.custom_code import process_restored
from holdfast.envs.make import make_world
from holdfast.envs.world import ReplayPoint, World
from holdfast.errors import HoldfastError
from holdfast.spec import ActionSpec, BoxActions, MixedActions

STEPS = 20


@process_restored()
def why_not_replayable(settings: EnvSection, in_a_worker: bool, worker_timeout: float) -> str | None:
    """Return one line that says why episodes cannot be replayed, or None if they can be.

    The test plays the same episode in a new environment and in one that has already played another episode.
    `in_a_worker`: play in a worker process, in case a step hangs or kills its process.
    """
    if settings.single_generator:
        return f"{settings.name}: all environments share one random generator, so an episode cannot be replayed."
    if settings.known_deterministic:
        return None
    if settings.num_ready:
        return (
            f"{settings.name}: is a ready object, so there is no second environment to test whether it can be replayed."
        )

    def one() -> World:
        return make_world(settings, int(in_a_worker), range(1), worker_timeout=worker_timeout, worker_failures=0)

    try:
        with one() as used, one() as fresh:
            play(used, 0)
            if play(used, 1) != play(fresh, 1):
                return f"{settings.name}: episodes with the same seed and actions differ, so they cannot be replayed."
    except HoldfastError as error:
        return f"{settings.name}: the replay test failed: {error}"
    return None


def play(world: World, episode: int, steps: int = STEPS) -> list[bytes]:
    """Play the first steps of an episode with random legal actions (fixed seed); return all outputs as bytes."""
    b, rng = world.buffers, np.random.default_rng(0)
    world.replay_to(ReplayPoint.at_episode_start(0, world.world_spec, np.array([episode])))
    seen = [b.obs.tobytes()]
    for _ in range(steps):
        world.step(np.stack([_legal_action(world.world_spec.actions, mask, rng) for mask in b.action_mask]))
        seen += [x.tobytes() for x in (b.obs, b.rewards, b.terminated, b.truncated)]
        if b.episode[0] != episode:
            break
    return seen


def _legal_action(spec: ActionSpec, mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    sizes = () if isinstance(spec, BoxActions) else spec.sizes
    legal = np.split(mask, np.cumsum(sizes)[:-1]) if mask.size else [np.ones(size, bool) for size in sizes]
    chosen = [rng.choice(np.flatnonzero(choices)) for choices in legal]
    if isinstance(spec, BoxActions | MixedActions):
        chosen += rng.uniform(np.maximum(spec.low, -1.0), np.minimum(spec.high, 1.0)).tolist()
    return np.array(chosen, spec.dtype).reshape(spec.shape)
