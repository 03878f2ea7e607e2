"""Playing a world with actions that depend only on (slot, step of that slot), so runs can be compared."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from holdfast.envs import World
from holdfast.spec import DiscreteActions


def actions_at(world: World, counts: np.ndarray) -> np.ndarray:
    """Each slot's action for its step number counts[slot]: mixed up, the same however slots are grouped."""
    spec = world.world_spec.actions
    assert isinstance(spec, DiscreteActions)
    slots = np.arange(world.num_slots) + world.env_ids.start * world.world_spec.agents_per_env
    return ((slots * 7919 + counts * 104729 + 31) // 7) % len(spec.names)


@dataclass
class Record:
    """Copies of what every step handed out, stacked over time by `stacked`."""

    rows: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def add(self, **arrays: np.ndarray) -> None:
        for name, array in arrays.items():
            self.rows.setdefault(name, []).append(array.copy())

    def stacked(self) -> dict[str, np.ndarray]:
        return {name: np.stack(rows) for name, rows in self.rows.items()}


def play(world: World, num_steps: int, seed: int = 3) -> dict[str, np.ndarray]:
    """Arrays [num_steps, slots, ...]: what the policy saw, did and got. final_obs is 0 where none ended."""
    record = Record()
    obs, _ = world.reset(seed=seed)
    counts = np.zeros(world.num_slots, int)
    for _ in range(num_steps):
        actions = actions_at(world, counts)
        before = obs.copy()
        obs, rewards, terminated, truncated, info = world.step(actions)
        ended = (terminated | truncated) & info["valid"]
        final_obs = np.where(ended.reshape(-1, *[1] * (obs.ndim - 1)), info["final_obs"], 0)
        record.add(
            before=before,
            actions=actions,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            valid=info["valid"],
            after=obs,
            final_obs=final_obs,
        )
        counts += info["valid"]
    return record.stacked()


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
