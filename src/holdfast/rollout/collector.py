"""The collector: step a world with a policy and write the transitions into the experience."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.envs import ReplayError, ReplayPoint, World
from holdfast.errors import HoldfastError
from holdfast.policies import Policy
from holdfast.policies.parts.previous import no_actions
from holdfast.ppo import Experience
from holdfast.recurrence import State
from holdfast.rollout.action_log import ActionLog
from holdfast.rollout.episodes import Episode, EpisodeTracker
from holdfast.spec import WorldSpec, keys


@dataclass
class Rollout:
    """Episodes, timings and statistics of one rollout."""

    episodes: list[Episode]
    world_s: float  # seconds in World.step
    inference_s: float  # seconds in everything else
    first_share: float  # fraction of observations that start an episode
    memory_norm: float  # see _memory_norm


class Collector:
    """Steps a world with a policy. `world.env_ids` may be a part of the run's environments: slots are numbered in the run."""

    def __init__(self, world: World, policy: Policy, experience: Experience, reset_memory_each_rollout: bool = False):
        self.world, self.policy, self.experience = world, policy, experience
        self.reset_memory_each_rollout = reset_memory_each_rollout
        self.log = ActionLog(world.world_spec, len(world.env_ids))
        first = world.env_ids.start * world.world_spec.agents_per_env
        self.slots = torch.arange(first, first + world.num_slots, device=experience.device)
        self.episodes = EpisodeTracker(world.num_slots, first)

    def start(self, seed: int) -> None:
        """Reset every environment and clear the memory of its slots."""
        point = ReplayPoint.at_episode_start(seed, self.world.world_spec, np.zeros(len(self.world.env_ids), np.int64))
        obs, info = self.world.replay_to(point)
        self.log.start(point)
        self.policy.reset_env_memory(self.slots)
        self.experience.write_inputs(0, first_inputs(self.world.world_spec, obs, info))

    def resume(self, point: ReplayPoint, inputs: Mapping[str, Tensor]) -> None:
        """Replay every environment to `point`; raise ReplayError if the result differs from the saved inputs [S, ...].

        The caller restores the memory.
        """
        obs, info = self.world.replay_to(point)
        seen = {keys.OBS: obs, **info}
        for key in (keys.OBS, keys.ACTION_MASK):
            if key in inputs and key in seen:
                differs = (inputs[key].cpu().numpy() != seen[key]).reshape(len(obs), -1).any(1)
                if differs.any():
                    slot = int(differs.argmax())
                    env = slot // self.world.world_spec.agents_per_env
                    raise ReplayError(
                        f"{self.world.world_spec.name}: environment {env} cannot be replayed exactly: {key} of slot {slot} "
                        f"differs after replaying the {int(point.lengths[env])} steps of its current episode"
                    )
        self.log.start(point)
        self.experience.write_inputs(0, inputs)

    def replay_point(self) -> ReplayPoint | None:
        """Return the point to which a resumed run replays every environment; None if the world cannot be replayed."""
        return self.log.replay_point(self.world.seed, self.world.steps) if self.world.replays else None

    @torch.no_grad()
    def collect(self) -> Rollout:
        """Fill the experience with one rollout, continuing all running episodes."""
        experience, policy = self.experience, self.policy
        if experience.complete:
            experience.carry_over()
        if self.reset_memory_each_rollout:
            policy.reset_env_memory(self.slots)
        state = policy.memory.read(self.slots)
        episodes: list[Episode] = []
        world_s = inference_s = 0.0
        for t in range(experience.num_rows):
            began = perf_counter()
            if t in experience.state_rows:
                experience.write_state(t, state)
            acted = policy.act(experience.inputs[t], state)
            state = tuple(leaf.detach().clone() for leaf in acted.state)  # a policy may overwrite its tensors later
            experience.write_action(t, acted.actions[0], acted.log_prob[0], acted.values[0])
            actions = acted.actions[0].cpu().numpy()
            acted_at = perf_counter()
            obs, rewards, terminated, truncated, info = self.world.step(actions)
            stepped_at = perf_counter()
            came = {keys.OBS: obs, keys.REWARDS: rewards, keys.DONES: terminated, keys.TRUNCATEDS: truncated}
            last = last_actions(self.world.world_spec, actions, info["valid"])
            experience.write_inputs(t + 1, {**came, keys.LAST_ACTIONS: last, **info}, info["valid"])
            self.log.add(actions, self.world.buffers.episode)
            if "lost" in info:
                state = self._drop_lost(t + 1, info["lost"], state)
            ended = terminated | truncated
            if ended.any():
                self._value_truncated(t + 1, truncated & ~terminated & info["valid"], info, state)
            episodes += self.episodes.step(rewards, ended, info["valid"], t, self.world.episode_infos)
            world_s += stepped_at - acted_at
            inference_s += (acted_at - began) + (perf_counter() - stepped_at)
        policy.memory.write(self.slots, state)
        experience.write_bootstrap(policy.predict_values(experience.inputs[-1], state)[0])
        outcomes = experience.outcomes()
        first_share = float((outcomes["dones"] | outcomes["truncateds"])[:-1].float().mean())
        return Rollout(episodes, world_s, inference_s, first_share, _memory_norm(state))

    def _drop_lost(self, t: int, lost: np.ndarray, state: State) -> State:
        """Exclude the episodes that `lost` slots (bool [S]) were in before row t. Return the state, now 0 for these slots.

        With lifetime memory it is unchanged, because learning, which replays all rows, resets nothing.
        """
        slots = torch.from_numpy(np.flatnonzero(lost)).to(self.experience.device)
        self.experience.drop_episode(t, slots)
        if self.policy.memory_scope == "lifetime":
            return state
        self.policy.reset_env_memory(self.slots[slots])
        return tuple(leaf.index_fill(1, slots, 0.0) for leaf in state)

    def _value_truncated(self, t: int, truncated: np.ndarray, info: dict[str, np.ndarray], state: State) -> None:
        """Store V(final observation), given the state before the reset, for the slots `truncated` (bool [S]) at row t."""
        if not truncated.any():
            return
        slots = torch.from_numpy(np.flatnonzero(truncated)).to(self.experience.device)
        inputs = {key: x[:, slots] for key, x in self.experience.inputs[t].items()}
        for key, final in ((keys.OBS, "final_obs"), (keys.ACTION_MASK, "final_action_mask")):
            if key in inputs:
                inputs[key] = torch.from_numpy(info[final][truncated]).to(self.experience.device).unsqueeze(0)
        for key in (keys.DONES, keys.TRUNCATEDS):
            inputs[key] = torch.zeros_like(inputs[key])  # the final observation still belongs to the truncated episode
        values = self.policy.predict_values(inputs, tuple(leaf[:, slots] for leaf in state))
        self.experience.write_final_values(t, values[0], slots)


def first_inputs(spec: WorldSpec, obs: np.ndarray, info: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the result of `World.reset` as policy inputs. All `dones` are true, because every slot starts an episode."""
    nothing = np.zeros(len(obs), np.float32)
    flags = {keys.DONES: nothing == 0, keys.TRUNCATEDS: nothing != 0}
    return {
        keys.OBS: obs,
        keys.REWARDS: nothing,
        keys.LAST_ACTIONS: no_actions(spec.actions, len(obs)),
        **flags,
        **info,
    }


def last_actions(spec: WorldSpec, actions: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return actions [S, ...] as inputs of the next step: no action in slots where the world did not use it (not `valid`)."""
    if valid.all():
        return actions
    return np.where(
        valid.reshape(-1, *(1 for _ in spec.actions.shape)), actions, no_actions(spec.actions, len(actions))
    )


def check_experience_spec(policy: Policy) -> None:
    """Raise HoldfastError if the policy asks to store inputs that its world does not supply."""
    mask = (keys.ACTION_MASK,) if policy.spec.mask_size else ()
    supplied = (keys.OBS, keys.REWARDS, keys.DONES, keys.TRUNCATEDS, keys.LAST_ACTIONS, *mask)
    if unknown := [key for key in policy.get_agent_experience_spec() if key not in supplied]:
        only_masked = "" if mask else f" ({keys.ACTION_MASK} is supplied only by worlds with action masks)"
        raise HoldfastError(
            f"{type(policy).__name__}.get_agent_experience_spec asks for {', '.join(map(repr, unknown))}, "
            f"which {policy.spec.name} does not supply.\nChoose from {', '.join(supplied)}{only_masked}."
        )


def _memory_norm(state: State) -> float:
    """Return the norm of a slot's state, averaged over slots."""
    slots = [leaf.transpose(0, 1).flatten(1) for leaf in state]
    return float(torch.cat(slots, 1).norm(dim=1).mean()) if slots else 0.0
