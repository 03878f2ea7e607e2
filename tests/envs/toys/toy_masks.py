"""Environments whose info says which actions are legal, and which refuse any other; `fault` spoils the mask.

Observation: episode, step, own number. `legal` says what is legal on it, so a mask from another step shows.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

PARTS = (2, 3)


def legal(obs: np.ndarray, num_choices: int = 4) -> np.ndarray:
    """[..., num_choices] bool for observations [..., 3]; moves with episode, step and agent."""
    return (obs.sum(-1, keepdims=True) + np.arange(num_choices)) % 3 != 0


def spoiled(mask: np.ndarray, fault: str) -> dict[str, Any]:
    match fault:
        case "missing":
            return {}
        case "size":
            return {"action_mask": mask[:-1]}
        case "values":
            return {"action_mask": 2 * mask.astype(np.int8)}
        case "nan":
            return {"action_mask": np.where(mask, np.nan, 0.0)}
        case "text":
            return {"action_mask": np.array(["yes"] * len(mask))}
        case "nothing legal":
            return {"action_mask": np.zeros_like(mask)}
        case "nothing legal in part 1":
            return {"action_mask": np.array([True, True, False, False, False])}
        case _:
            return {"action_mask": mask.astype(np.int8)}  # as Taxi gives it


class Gate(gymnasium.Env):
    """Terminates in step 3 of even episodes, is cut in step 4 of odd ones. The fault comes in step `faulty` of episode 1 (0: reset)."""

    observation_space = spaces.Box(0, 1000, (3,), np.float32)

    def __init__(self, fault: str = "", faulty: int = 2, first: bool = False, parts: bool = False, at_end: bool = True):
        self.action_space = spaces.MultiDiscrete(list(PARTS)) if parts else spaces.Discrete(4)
        self.parts, self.at_end = parts, at_end
        self.fault, self.when = fault, (0 if first else 1, faulty)
        self.obs = np.array([-1, 0, 0], np.float32)

    def _info(self, ended: bool = False) -> dict[str, Any]:
        if ended and not self.at_end:
            return {}
        mask = legal(self.obs, 5 if self.parts else 4)
        now = (int(self.obs[0]), int(self.obs[1])) == self.when
        return spoiled(mask, self.fault if now else "")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.obs = np.array([self.obs[0] + 1, 0, 0], np.float32)
        return self.obs, self._info()

    def step(self, action: Any) -> Any:
        chosen = [action[0], PARTS[0] + action[1]] if self.parts else [action]
        if not legal(self.obs, 5 if self.parts else 4)[chosen].all():
            raise ValueError(f"action {action} is illegal on {self.obs}")
        self.obs = self.obs + np.array([0, 1, 0], np.float32)
        even = self.obs[0] % 2 == 0
        terminated, truncated = bool(even and self.obs[1] == 3), bool(not even and self.obs[1] == 4)
        return self.obs, 1.0, terminated, truncated, self._info(terminated or truncated)


class Gates(ParallelEnv):
    """Two agents; ann leaves in step 2, bob in step 4."""

    metadata = {"name": "gates"}  # noqa: RUF012

    def __init__(self, fault: str = "", faulty: int = 2, first: bool = False) -> None:
        self.possible_agents = ["ann", "bob"]
        self.agents: list[str] = []
        self.fault, self.when = fault, (0 if first else 1, faulty)
        self.episode = -1

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(0, 1000, (3,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(4)

    def _obs(self, agent: str) -> np.ndarray:
        return np.array([self.episode, self.t, self.possible_agents.index(agent)], np.float32)

    def _answer(self) -> Any:
        obs = {agent: self._obs(agent) for agent in self.agents}
        fault = self.fault if (self.episode, self.t) == self.when else ""
        infos = {a: spoiled(legal(obs[a]), fault if a == "bob" else "") for a in self.agents}
        return obs, infos

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.episode, self.t, self.agents = self.episode + 1, 0, list(self.possible_agents)
        return self._answer()

    def step(self, actions: dict[str, Any]) -> Any:
        for agent, action in actions.items():
            if not legal(self._obs(agent))[action]:
                raise ValueError(f"{agent}: action {action} is illegal")
        self.t += 1
        obs, infos = self._answer()
        leaving = {"ann": self.t == 2, "bob": self.t == 4}
        self.agents = [agent for agent in self.agents if not leaving[agent]]
        terminated = {agent: leaving[agent] for agent in obs}
        return obs, dict.fromkeys(obs, 1.0), terminated, dict.fromkeys(obs, False), infos


def parallel_env(**kwargs: Any) -> Gates:
    return Gates(**kwargs)


gymnasium.register("Gate-v0", entry_point=f"{__name__}:Gate")
