"""Turn-based (AEC) environments of PettingZoo as parallel environments, by PettingZoo's own converters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel, turn_based_aec_to_parallel_wrapper

from holdfast.spec import keys


def to_parallel(env: AECEnv | ParallelEnv, reads_masks: bool) -> ParallelEnv:
    """Return the environment as a parallel one. reads_masks: `infos[agent]["action_mask"]` holds the legal actions."""
    if isinstance(env, ParallelEnv):
        return env
    if env.metadata.get("is_parallelizable"):
        return aec_to_parallel(env)
    return TurnBased(env, reads_masks)


class TurnBased(turn_based_aec_to_parallel_wrapper):
    """One agent acts in each step. The others wait: they have one legal action, which is ignored.

    So waiting adds nothing to the policy loss and the entropy, and a reward that arrives while an agent waits belongs
    to what it did before, like any delayed reward. Box actions have no masks: there, the ignored actions are noise.
    """

    def __init__(self, env: AECEnv, reads_masks: bool):
        super().__init__(env)
        self._reads_masks = reads_masks

    @property
    def masks_actions(self) -> bool:
        """Whether infos have action masks."""
        return isinstance(self.action_space(self.possible_agents[0]), spaces.Discrete | spaces.MultiDiscrete)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._mask(*super().reset(seed, options))

    def step(self, actions: dict[Any, Any]) -> Any:
        result: Any = super().step(actions)
        obs, rewards, terminated, truncated, infos = result
        # an agent that has ended may get rewards until it leaves, so its episode ends when it leaves
        left = {agent: agent not in self.agents for agent in terminated}
        terminated = {agent: ended and left[agent] for agent, ended in terminated.items()}
        truncated = {agent: cut and left[agent] for agent, cut in truncated.items()}
        if self.agents and any(left.values()):  # observed before the next agent was known, whose mask was empty then
            acting = self.aec_env.agent_selection
            obs[acting], infos[acting] = self.aec_env.observe(acting), self.aec_env.infos[acting]
        obs, infos = self._mask(obs, infos)
        return obs, rewards, terminated, truncated, infos

    def _mask(self, obs: dict[Any, Any], infos: dict[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Replace the masks of waiting agents, which may allow no action, and add the mask of the one that acts."""
        acting = self.aec_env.agent_selection if self.agents else None
        infos = {agent: {key: x for key, x in info.items() if key != "active_agent"} for agent, info in infos.items()}
        if not self.masks_actions:
            return obs, infos
        obs = dict(obs)
        for agent, seen in obs.items():
            info = infos.setdefault(agent, {})
            in_obs = isinstance(seen, Mapping) and keys.ACTION_MASK in seen
            if agent not in self.agents:
                continue  # no action follows, so any mask will do
            if agent != acting:
                info[keys.ACTION_MASK] = self._first_choice(agent)
                if in_obs:
                    obs[agent] = {**seen, keys.ACTION_MASK: info[keys.ACTION_MASK]}
            elif in_obs:
                info[keys.ACTION_MASK] = seen[keys.ACTION_MASK]
            elif not self._reads_masks:
                info[keys.ACTION_MASK] = np.ones_like(self._first_choice(agent))
        return obs, infos

    def _first_choice(self, agent: Any) -> np.ndarray:
        """Return the mask that allows only the first action; for MultiDiscrete, the first choice of each dimension."""
        space: Any = self.action_space(agent)
        sizes = space.nvec.ravel() if isinstance(space, spaces.MultiDiscrete) else [int(space.n)]
        return np.concatenate([np.arange(size) == 0 for size in sizes]).astype(np.int8)
