"""Environments with nested observations and actions, and masks inside observations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Robot(gymnasium.Env):
    """Refuses actions outside its space and illegal moves. Episodes depend on seed and actions.

    The mask has two entries for each of the two buttons, then one for each of three moves. `fault` spoils an observation.
    """

    observation_space: spaces.Space = spaces.Dict(
        action_mask=spaces.MultiBinary(7),
        board=spaces.Box(0, 255, (5, 5, 2), np.uint8),
        hand=spaces.Tuple([spaces.Discrete(4, start=1), spaces.Dict(heat=spaces.Box(-9, 9, (2,), np.float64))]),
        note=spaces.Text(20),
    )
    action_space = spaces.Dict(
        aim=spaces.Box(-1, 1, (2,), np.float64), buttons=spaces.MultiBinary(2), move=spaces.Discrete(3, start=1)
    )

    def __init__(self, fault: str = "", nested_mask: bool = False) -> None:
        self.fault = fault
        if nested_mask:  # in info, as one mask per entry of the action space
            assert isinstance(self.observation_space, spaces.Dict)
            kept = {key: space for key, space in self.observation_space.spaces.items() if key != "action_mask"}
            self.observation_space = spaces.Dict(kept)
        self.nested_mask = nested_mask

    def _answer(self) -> tuple[Any, dict[str, Any]]:
        rng = self.np_random
        self.mask = np.array([1, 1, 1, 0, *rng.permutation([1, 1, 0])], np.int8)
        heat = rng.normal(size=2)
        board = rng.integers(0, 11, (5, 5, 2)).astype(np.uint8)
        obs = {"board": board, "hand": (int(rng.integers(1, 5)), {"heat": heat}), "note": "well"}
        info: dict[str, Any] = {}
        if self.nested_mask:
            info["action_mask"] = {"buttons": (self.mask[:2], self.mask[2:4]), "move": self.mask[4:]}
        else:
            obs["action_mask"] = self.mask
        if self.t == 2:
            if self.fault == "nan":
                heat[1] = np.nan
            elif self.fault == "code":
                obs["hand"] = (5, {"heat": heat})
            elif self.fault == "missing":
                del obs["board"]
            elif self.fault == "mask":
                obs.pop("action_mask")
        return obs, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self._answer()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        chosen = [action["buttons"][0], 2 + action["buttons"][1], 4 + action["move"] - 1]
        assert self.mask[chosen].all(), (action, self.mask)
        self.t += 1
        obs, info = self._answer()
        return obs, float(action["aim"].sum() + action["move"]), self.t == 5, False, info


class Turns(ParallelEnv):
    """Two players take turns, as an AEC game converted to a parallel one: the mask of the waiting player is all 0."""

    metadata = {"name": "turns"}  # noqa: RUF012
    possible_agents = ["ann", "bob"]  # noqa: RUF012

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Dict(
            observation=spaces.Box(0, 9, (3, 3, 2), np.int8), action_mask=spaces.Box(0, 1, (9,), np.int8)
        )

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(9)

    def _answer(self) -> Any:
        turn = self.possible_agents[self.t % 2]
        board = np.full((3, 3, 2), self.t, np.int8)
        masks = {agent: np.array([agent == turn and i >= self.t for i in range(9)], np.int8) for agent in self.agents}
        return {agent: {"observation": board, "action_mask": masks[agent]} for agent in self.agents}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.t, self.agents = 0, list(self.possible_agents)
        return self._answer(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert actions[self.possible_agents[self.t % 2]] >= self.t
        self.t += 1
        obs = self._answer()
        ended = dict.fromkeys(obs, self.t == 6)
        if self.t == 6:
            self.agents = []
        return obs, dict.fromkeys(obs, 1.0), ended, dict.fromkeys(obs, False), {agent: {} for agent in obs}


def parallel_env(**kwargs: Any) -> Turns:
    return Turns(**kwargs)


gymnasium.register("Robot-v0", entry_point=f"{__name__}:Robot")
