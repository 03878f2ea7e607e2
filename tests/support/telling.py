"""A Gymnasium environment that reports numbers in `info`, and draws from the global random generators."""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Telling(gymnasium.Env):
    """Observation and reward are random; action 0 makes success likelier. names: numbers to report besides."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, names: int = 0) -> None:
        self.names = names

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.length = 0
        return self.np_random.random(2).astype(np.float32), {"score": -1.0}

    def step(self, action: Any) -> Any:
        random.random()
        np.random.random()
        if torch := sys.modules.get("torch"):  # workers do not need it
            torch.rand(1)
        self.length += 1
        draw = self.np_random.random(3)
        ended = self.length >= 3 and draw[2] < 0.4
        info: dict[str, Any] = {"score": -1.0, **{f"name{i:03}": i for i in range(self.names)}}
        if ended:
            info |= {
                "success": bool(draw[0] < 0.8 - 0.6 * action),
                "score": np.float32(draw[1]),
                "parts": {"first": np.array(self.length), "deeper": {"too": 1}},
                "episode": {"r": 1.5, "l": self.length, "t": time.perf_counter()},
                "TimeLimit.truncated": False,
                "text": "far",
                "missing": np.nan,
                "array": np.zeros(3),
            }
        return draw[:2].astype(np.float32), float(draw[0] - action), bool(ended), False, info


gymnasium.register("Telling-v0", entry_point=f"{__name__}:Telling")
