"""CartPole-v1 that shows positions only, for the libraries that step Gymnasium environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

POSITIONS = [0, 2]  # of the cart and of the pole; 1 and 3 are the velocities


class HideVelocities(gymnasium.ObservationWrapper):
    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        space: Any = env.observation_space
        self.observation_space = gymnasium.spaces.Box(space.low[POSITIONS], space.high[POSITIONS])

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[POSITIONS]


def make_env() -> gymnasium.Env:
    return HideVelocities(gymnasium.make("CartPole-v1", disable_env_checker=True))


def make_vector_env(num_envs: int) -> gymnasium.vector.SyncVectorEnv:
    """Gymnasium's own vectorisation; an ended episode is reset in the step that ends it."""
    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.vector.SyncVectorEnv([make_env] * num_envs, autoreset_mode=same_step)
