"""A Gymnasium environment that returns NaN or infinity at one step; `gym:support.faulty:Faulty-v0` imports this file."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Faulty(gymnasium.Env):
    """Episodes have 10 steps. The fault is in step 3 of each environment's third episode (step 23 of the world)."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, field: str = "", value: str = "nan") -> None:
        self.field, self.value = field, float(value)
        self.episode, self.t = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self.np_random.random(2).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        obs, reward = self.np_random.random(2).astype(np.float32), float(self.np_random.random())
        if (self.episode, self.t) == (2, 3):
            if self.field == "observation":
                obs[1] = self.value
            elif self.field == "reward":
                reward = self.value
        return obs, reward, False, self.t == 10, {}


gymnasium.register("Faulty-v0", entry_point=f"{__name__}:Faulty")
