"""A Gymnasium environment that leaks memory at every step; `gym:support.leaking:Leaking-v0` imports this file."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Leaking(CartPoleEnv):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[bytearray] = []

    def step(self, action: Any) -> Any:
        self.kept.append(bytearray(b"x" * 4096))  # written to, so that it is resident
        return super().step(action)


gymnasium.register("Leaking-v0", entry_point=f"{__name__}:Leaking")
