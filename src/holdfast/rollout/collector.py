"""The collector: steps worlds with a policy and writes what happened into experience.

One row of the loop is the whole walk of an observation on the acting side: it arrived (row t), the policy acts on it from
memory, the world answers, the answer arrives (row t + 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from holdfast.envs import ReplayError, ReplayPoint, World
from holdfast.policies import Policy
from holdfast.ppo import Experience
from holdfast.rollout.action_log import ActionLog
from holdfast.rollout.arrivals import arrivals, first_arrivals
from holdfast.rollout.episodes import Episode, EpisodeTracker
from holdfast.rollout.replay import value_of
from holdfast.spec import keys


@dataclass
class Rollout:
    """What one rollout cost and saw."""

    episodes: list[Episode]
    world_s: float
    inference_s: float
    first_share: float
    memory_norm: float


class Collector:
    def __init__(self, world: World, policy: Policy, experience: Experience, reset_memory_each_rollout: bool = False):
        self.world, self.policy, self.experience = world, policy, experience
        self.reset_memory_each_rollout = reset_memory_each_rollout
        self.episodes = EpisodeTracker(world.num_slots)
        self.log = ActionLog(world.world_spec, len(world.env_ids))
        self._slots = torch.arange(world.num_slots, device=experience.device)
        self._slot_start = torch.zeros(world.num_slots, dtype=torch.long, device=experience.device)

    def start(self, seed: int) -> None:
        """Reset every world and every memory. All first observations open an episode."""
        fresh = np.zeros(len(self.world.env_ids), np.int64)
        point = ReplayPoint.at_episode_start(seed, self.world.world_spec, fresh)
        arrived = first_arrivals(*self.world.replay_to(point))
        self.log.start(point)
        self.policy.reset_memory()
        self.experience.write_arrival(0, arrived)

    def resume(self, point: ReplayPoint, arrived: Mapping[str, Tensor]) -> None:
        """Go on where every environment stood, with what had arrived last [slots, ...]. Memory is the policy's to bring back."""
        obs, info = self.world.replay_to(point)
        seen = {keys.OBS: obs, **info}
        for key in (keys.OBS, keys.ACTION_MASK):
            if key in arrived and key in seen:
                other = (arrived[key].cpu().numpy() != seen[key]).reshape(len(obs), -1).any(1)
                if other.any():
                    slot = int(other.argmax())
                    env = slot // self.world.world_spec.agents_per_env
                    raise ReplayError(
                        f"{self.world.world_spec.name}: environment {env} did not come back to where it was: {key} of slot "
                        f"{slot} differs after the {int(point.lengths[env])} steps that had been taken in its episode"
                    )
        self.log.start(point)
        self.experience.write_arrival(0, arrived)

    def replay_point(self) -> ReplayPoint | None:
        """How to replay the current episodes; None where that is impossible."""
        return self.log.replay_point(self.world.seed, self.world.steps) if self.world.replays else None

    @torch.no_grad()
    def collect(self) -> Rollout:
        """Fill the experience with one rollout, continuing every episode where the last one left it."""
        experience, policy = self.experience, self.policy
        if experience.complete:
            experience.carry_over()
        if self.reset_memory_each_rollout:
            policy.reset_memory()
        episodes: list[Episode] = []
        world_s = inference_s = 0.0
        for t in range(experience.num_rows):
            began = perf_counter()
            if t in experience.state_rows and policy.has_memory():
                experience.write_state(t, policy.memory.read(self._slots))
            arrived = experience.arrival(t)
            td = policy(TensorDict({**arrived, keys.SLOT_START: self._slot_start}, batch_size=[len(self._slots)]))
            experience.write_action(t, td[keys.ACTIONS], td[keys.LOG_PROB], td[keys.VALUES])
            actions = td[keys.ACTIONS].cpu().numpy()
            acted = perf_counter()
            obs, rewards, terminated, truncated, info = self.world.step(actions)
            answered = perf_counter()
            answer = arrivals(obs, rewards, terminated, truncated, info)
            experience.write_arrival(t + 1, answer, valid=info["valid"])
            self.log.add(actions, self.world.buffers.episode)
            if "lost" in info:
                self._drop_lost(t + 1, info["lost"])
            self._value_cut_episodes(t + 1, terminated, truncated, info)
            episodes += self.episodes.step(rewards, terminated | truncated, info["valid"])
            world_s += answered - acted
            inference_s += (acted - began) + (perf_counter() - answered)
        experience.write_bootstrap(
            value_of(policy, experience.arrival(experience.num_rows), policy.memory.read(self._slots))
        )
        first = experience.whole().first
        return Rollout(episodes, world_s, inference_s, float(first.float().mean()), self._memory_norm())

    def _drop_lost(self, t: int, lost: np.ndarray) -> None:
        """The environments of these slots (bool [S]) broke down on the way to row t: nothing of their episodes is learned from."""
        rows = torch.from_numpy(np.flatnonzero(lost)).to(self.experience.device)
        self.experience.drop_episode(t, rows)
        self.policy.reset_env_memory(rows)

    def _value_cut_episodes(
        self, t: int, terminated: np.ndarray, truncated: np.ndarray, info: dict[str, np.ndarray]
    ) -> None:
        """A truncated episode's value goes on: V(final observation), seen with the memory of the episode that was cut."""
        cut = truncated & ~terminated & info["valid"]
        if not cut.any():
            return
        rows = torch.from_numpy(np.flatnonzero(cut)).to(self.experience.device)
        arrived = self.experience.arrival(t, rows)
        for key, final in ((keys.OBS, "final_obs"), (keys.ACTION_MASK, "final_action_mask")):
            if key in arrived:
                arrived[key] = torch.from_numpy(info[final][cut]).to(self.experience.device)
        for key in (keys.DONES, keys.TRUNCATEDS):
            arrived[key] = torch.zeros_like(arrived[key])  # the final observation opens no episode
        values = value_of(self.policy, arrived, self.policy.memory.read(rows))
        self.experience.write_final_values(t, values, rows)

    def _memory_norm(self) -> float:
        """Mean length of a slot's memory."""
        leaves: tuple[Tensor, ...] = self.policy.memory.snapshot()
        slots = [leaf.transpose(0, 1).flatten(1) for leaf in leaves]
        return float(torch.cat(slots, 1).norm(dim=1).mean()) if slots else 0.0
