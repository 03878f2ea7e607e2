"""Small Gymnasium environments, well-behaved and not; `gym:toy_gym:Count-v0` imports this file."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from holdfast.envs import Buffers


class Count(gymnasium.Env):
    """Terminates when the actions add up to 3, truncates after 5 steps. `reuse`: always hands out one array.

    Observation: episode number, step, sum of actions. Deterministic: the seed changes nothing.
    """

    observation_space = spaces.Box(-100, 1000, (3,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, reuse: bool = True) -> None:
        self.obs = np.array([-1.0, 0.0, 0.0])
        self.show = (lambda: self.obs) if reuse else self.obs.copy

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.obs[:] = self.obs[0] + 1, 0, 0
        return self.show(), {}

    def step(self, action: Any) -> Any:
        self.obs[1:] += 1, action
        return self.show(), 10.0 * self.obs[1] + action, self.obs[2] >= 3, self.obs[1] >= 5, {}


class Dice(gymnasium.Env):
    """Everything depends on the episode's seed and on the actions; nothing else may matter."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.random(2).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        draw = self.np_random.random(3)
        obs = (draw[:2] + action).astype(np.float32)
        return obs, float(draw[2]), bool(draw[2] < 0.2), bool(draw[2] > 0.9), {}


class Endless(Dice):
    """Never ends."""

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, False, False, {}


class OneStep(Dice):
    """Ends on its first step."""

    def step(self, action: Any) -> Any:
        return np.full(2, -1, np.float32), 1.0, True, False, {}


class Odd(Dice):
    """Does something wrong where its action is 3, or 2 (but later), or in reset, or when made."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.resets = 0
        if fault == "make":
            raise OSError("the licence server is down")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.resets += 1
        if self.fault == "reset" and self.resets == 2:
            raise KeyError("level 2")
        obs, info = super().reset(seed=seed)
        return (obs if self.fault != "old reset" else obs[:1], info)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = np.zeros(2, np.float32), 0.0, False, False, {}
        if action < 2:
            return obs, reward, terminated, truncated, info
        if action == 2:
            time.sleep(0.3)
        match self.fault:
            case "shape":
                obs = np.zeros(1, np.float32)
            case "dtype":
                obs = np.array(["a", "b"])
            case "nan":
                obs[1] = np.nan
            case "inf reward":
                reward = np.inf
            case "nan at the end":
                obs[0], terminated = np.nan, True
            case "reward":
                reward = [1.0, 2.0]
            case "raise":
                raise ValueError("the physics exploded")
            case "sys.exit":
                sys.exit(5)
            case "reset":
                terminated = True
            case "old step":
                return obs, reward, terminated, info
            case "exit":
                os._exit(7)
            case "orphan":  # dies, while a child of its own still holds all its files open
                child = os.fork()
                if child == 0:
                    time.sleep(60)
                    os._exit(0)
                Path(os.environ["ORPHAN"]).write_text(str(child))
                os.kill(os.getpid(), signal.SIGKILL)
            case "sleep":
                time.sleep(60)
            case "sleep at 3" if action == 3:
                time.sleep(60)
            case "print":
                print("hello from the environment", flush=True)
        return obs, reward, terminated, truncated, info


FAULTS = ("none", "exit", "raise", "reset", "shape", "slow", "hang", "nan", "rubbish")


class Frail(Dice):
    """Dice whose action is one of FAULTS by its number; `sound` ones take no harm.

    While the file `note` holds a number above 0 none can be made; each try counts it down.
    Episodes whose seed is in `unlucky` cannot be started.
    A slow step makes the file `gate`.begun and lasts until the file `gate` exists.
    """

    action_space = spaces.Discrete(len(FAULTS))

    def __init__(self, sound: bool = False, note: str = "", unlucky: tuple[int, ...] = (), gate: str = "") -> None:
        self.sound, self.unlucky, self.gate = sound, unlucky, gate
        self.resets_fail = False
        if note and Path(note).exists() and (left := int(Path(note).read_text())) > 0:
            Path(note).write_text(str(left - 1))
            raise OSError("the licence server is down")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.resets_fail or seed in self.unlucky:
            raise KeyError("level 2")
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        match "none" if self.sound else FAULTS[action]:
            case "exit":
                os._exit(7)
            case "raise":
                raise ValueError("the physics exploded")
            case "reset":
                self.resets_fail = terminated = True
            case "shape":
                obs = obs[:1]
            case "slow":
                Path(f"{self.gate}.begun").touch()
                while not Path(self.gate).exists():
                    time.sleep(0.01)
            case "hang":
                time.sleep(60)
            case "nan":
                obs[1] = np.nan
            case "rubbish":
                _spoil_rows()
                os._exit(8)
        return obs, reward, terminated, truncated, info


def _spoil_rows() -> None:
    """All rows of this process, as by a worker that dies while it writes."""
    for found in gc.get_objects():
        if isinstance(found, Buffers):
            for array in vars(found).values():
                array[...] = 77


class Mirror(gymnasium.Env):
    """Returns its action; the spaces are given. Records what it was handed."""

    def __init__(self, action_space: spaces.Space, observation_space: spaces.Space | None = None) -> None:
        self.action_space = action_space
        self.observation_space = observation_space or spaces.Box(-1, 1, (1,), np.float32)
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        return self.observation_space.sample(), 0.0, False, False, {}


for kind in (Count, Dice, Endless, OneStep, Odd, Frail, Mirror):
    gymnasium.register(f"{kind.__name__}-v0", entry_point=f"{__name__}:{kind.__name__}")
gymnasium.register("Short-v0", entry_point=f"{__name__}:Endless", max_episode_steps=4)
