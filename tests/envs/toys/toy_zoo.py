"""A small PettingZoo parallel environment whose agents leave, and come, at times given to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

NAMES = ["ann", "bob", "cas"]


class Party(ParallelEnv):
    """leave[i]: the step in which agent i is last seen; come[i]: the step that first shows it (0: reset).

    Observation: episode, step, own number, the seed's draw. Even-numbered agents terminate, odd ones are cut.
    """

    metadata = {"name": "party"}  # noqa: RUF012

    def __init__(
        self,
        leave: tuple[int, ...] = (2, 4, 3),
        come: tuple[int, ...] = (0, 0, 0),
        fault: str = "",
        silent: bool = False,
    ) -> None:
        self.leave, self.fault, self.silent = leave, fault, silent
        self.possible_agents = NAMES[: len(leave)]
        self.come = come[: len(leave)]
        self.agents: list[str] = []
        self.episode = -1
        self.seen_actions: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> spaces.Space:
        size = 5 if self.fault == "obs space" and agent == "cas" else 4
        return spaces.Box(-100, 2**31, (size,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(3 if self.fault == "action space" and agent == "bob" else 2)

    def _obs(self, agent: str) -> np.ndarray:
        return np.array([self.episode, self.t, NAMES.index(agent), self.draw], np.float32)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.episode += 1
        self.t = 0
        self.draw = np.random.default_rng(seed).integers(1000)
        self.agents = [agent for agent, come in zip(self.possible_agents, self.come, strict=True) if come == 0]
        return {agent: self._obs(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents), (set(actions), self.agents)
        self.seen_actions.append(actions)
        if self.fault == "raise":
            raise RuntimeError("the party is over")
        self.t += 1
        for agent, come in zip(self.possible_agents, self.come, strict=True):
            if come == self.t:
                self.agents.append(agent)
        leaving = {agent: self.leave[NAMES.index(agent)] == self.t for agent in self.agents}
        told = {agent: leaves and not self.silent for agent, leaves in leaving.items()}
        obs = {agent: self._obs(agent) for agent in self.agents}
        if self.fault == "forget":
            obs.pop("ann")
        rewards = {agent: float(action) + self.t for agent, action in actions.items()}
        terminated = {agent: leaves and NAMES.index(agent) % 2 == 0 for agent, leaves in told.items()}
        truncated = {agent: leaves and NAMES.index(agent) % 2 == 1 for agent, leaves in told.items()}
        self.agents = [agent for agent in self.agents if not leaving[agent]]
        return obs, rewards, terminated, truncated, {agent: {} for agent in obs}


def parallel_env(**kwargs: Any) -> Party:
    return Party(**kwargs)
