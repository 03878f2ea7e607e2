"""A world with random observations and episode ends that do not depend on the actions."""

from __future__ import annotations

import numpy as np

from holdfast.envs import ReplayPoint, World
from holdfast.spec import BoxObs, DiscreteObs, WorldSpec


class ScriptedWorld(World):
    """Draws observations, rewards, terminations and truncations from a seed, and records them."""

    def __init__(self, spec: WorldSpec, num_slots: int, end_rate: float = 0.2):
        super().__init__(spec, range(num_slots))
        self.end_rate = end_rate
        self.shown: list[np.ndarray] = []  # every observation except final ones, in order
        self.masks: list[np.ndarray] = []  # their action masks
        self.finals: dict[tuple[int, int], np.ndarray] = {}  # (step, slot) -> final observation of an episode

    def _draw(self) -> np.ndarray:
        obs = self.world_spec.obs
        if isinstance(obs, BoxObs):
            numbers = self.rng.standard_normal((self.num_slots, *obs.shape)).astype(np.float32)
            for part in obs.parts:
                for i, size in enumerate(part.sizes, part.start):
                    numbers[:, i] = self.rng.integers(0, size, self.num_slots)
            return numbers
        if isinstance(obs, DiscreteObs):
            return self.rng.integers(0, obs.n, self.num_slots)
        tokens = self.rng.integers(0, 3, (self.num_slots, *obs.shape)).astype(np.uint8)
        tokens[..., 0] = self.rng.integers(0, 5, tokens.shape[:-1]) * 16 + self.rng.integers(0, 5, tokens.shape[:-1])
        return tokens

    def _draw_masks(self) -> np.ndarray:
        """Forbid half of the choices, but never all choices of one part."""
        parts = [np.zeros((self.num_slots, 0), bool)]
        for size in self.world_spec.actions.mask_sizes:
            mask = self.rng.random((self.num_slots, size)) < 0.5
            mask[np.arange(self.num_slots), self.rng.integers(0, size, self.num_slots)] = True
            parts.append(mask)
        return np.concatenate(parts, 1)

    @property
    def replays(self) -> bool:
        return False

    def _replay_to(self, point: ReplayPoint) -> None:
        self.rng = np.random.default_rng(point.seed)
        self.buffers.episode[:] = 0
        self.buffers.obs[:] = self._draw()
        self.shown = [self.buffers.obs.copy()]
        self.buffers.action_mask[:] = self._draw_masks()
        self.masks = [self.buffers.action_mask.copy()]

    def _step(self, envs: range) -> None:
        b = self.buffers
        b.rewards[:] = self.rng.standard_normal(self.num_slots)
        b.terminated[:] = self.rng.random(self.num_slots) < self.end_rate / 2
        b.truncated[:] = self.rng.random(self.num_slots) < self.end_rate / 2
        b.final_obs[:] = self._draw()
        b.obs[:] = self._draw()
        ended = b.terminated | b.truncated
        b.final_obs[~ended] = 0
        b.episode += ended
        for slot in np.flatnonzero(ended):
            self.finals[self.steps, int(slot)] = b.final_obs[slot].copy()
        self.shown.append(b.obs.copy())
        b.final_action_mask[:], b.action_mask[:] = self._draw_masks(), self._draw_masks()
        self.masks.append(b.action_mask.copy())
