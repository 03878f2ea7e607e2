"""A turn-based PettingZoo game with known returns, and a parallelizable one."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import AgentSelector, parallel_to_aec

NAMES = ["ann", "bob", "cas"]


class Pot(AECEnv):
    """Players take turns. A player gets 1 + its action for its move, and every other one loses 0.25 at the same time.

    turns[i]: the turn after which player i has ended. It is then removed at once, or, if `late`, when its next turn comes:
    until then, it goes on losing. dicts: observations are Dict(observation, action_mask), as in PettingZoo's classics.
    """

    metadata = {"name": "pot", "is_parallelizable": False}  # noqa: RUF012

    def __init__(
        self, turns: tuple[int, ...] = (3, 3), late: bool = False, dicts: bool = False, gives_masks: bool = False
    ):
        self.turns, self.late, self.dicts, self.gives_masks = turns, late, dicts, gives_masks
        self.possible_agents = NAMES[: len(turns)]
        self.render_mode = None

    def observation_space(self, agent: str) -> spaces.Space:
        box = spaces.Box(-1, 100, (3,), np.float32)
        return spaces.Dict(observation=box, action_mask=spaces.Box(0, 1, (3,), np.int8)) if self.dicts else box

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(3)

    def _legal(self, agent: str) -> np.ndarray:
        """Only action 1 and 2 are legal; who waits has no legal action."""
        return np.array([0, 1, 1], np.int8) * (agent == self.agent_selection)

    def observe(self, agent: str) -> Any:
        mine = np.array([NAMES.index(agent), self.taken[agent], self.draw], np.float32)
        return {"observation": mine, "action_mask": self._legal(agent)} if self.dicts else mine

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.agents = self.possible_agents[:]
        self.draw = np.random.default_rng(seed).integers(100)
        self.taken = dict.fromkeys(self.agents, 0)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.selector = AgentSelector(self.agents)
        self.agent_selection = self.selector.next()
        self._tell()

    def _tell(self) -> None:
        self.infos = {agent: {"action_mask": self._legal(agent)} if self.gives_masks else {} for agent in self.agents}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self.selector.reinit([other for other in self.agents if other != agent])
            self._was_dead_step(action)
            if self.agents and self.late:
                following = NAMES[NAMES.index(agent) :] + NAMES[: NAMES.index(agent)]
                self.agent_selection = next(other for other in following if other in self.agents)
            return
        if self.dicts or self.gives_masks:
            assert self._legal(agent)[action], "an illegal action"
        self._cumulative_rewards[agent] = 0
        self.taken[agent] += 1
        self.rewards = {other: 1.0 + action if other == agent else -0.25 for other in self.agents}
        self.terminations[agent] = self.taken[agent] >= self.turns[NAMES.index(agent)]
        self._accumulate_rewards()
        order = NAMES[NAMES.index(agent) + 1 :] + NAMES[: NAMES.index(agent) + 1]
        self.agent_selection = next(other for other in order if other in self.agents)
        self._tell()
        if not self.late:
            self._deads_step_first()


class Both(ParallelEnv):
    """Two agents act at the same time, for three steps; the reward is the action of the other one."""

    metadata = {"name": "both"}  # noqa: RUF012

    def __init__(self) -> None:
        self.possible_agents = NAMES[:2]
        self.render_mode = None

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(-1, 100, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents, self.t = self.possible_agents[:], 0
        return dict.fromkeys(self.agents, np.zeros(1, np.float32)), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        self.t += 1
        acted, over = self.agents, self.t == 3
        self.agents = [] if over else acted
        rewards = {agent: float(actions[other]) for agent, other in zip(acted, reversed(acted), strict=True)}
        obs, flags = dict.fromkeys(acted, np.full(1, self.t, np.float32)), dict.fromkeys(acted, over)
        return obs, rewards, flags, dict.fromkeys(acted, False), {agent: {} for agent in acted}


def env(parallelizable: bool = False, **kwargs: Any) -> AECEnv:
    return parallel_to_aec(Both()) if parallelizable else Pot(**kwargs)
