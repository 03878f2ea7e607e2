"""The peer's side of `make bench-peers`; runs in the peer's own environment. Prints one JSON object.

usage: sb3_cartpole.py SEED STEPS [--anchor]    (--anchor: keep weights after every rollout and find when it first reaches 450)
"""

from __future__ import annotations

import json
import sys
import time

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

EPISODES = 20


class HideVelocities(gym.ObservationWrapper):
    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(env.observation_space.low[[0, 2]], env.observation_space.high[[0, 2]])

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[[0, 2]]


def make_env() -> gym.Env:
    return HideVelocities(gym.make("CartPole-v1"))


class Snapshots(BaseCallback):
    """Weights and training seconds after every rollout, the copying not counted."""

    def __init__(self, keep: bool):
        super().__init__()
        self.keep, self.taken, self.paused = keep, [], 0.0

    def _on_training_start(self) -> None:
        self.began = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        now = time.perf_counter()
        if self.keep and self.num_timesteps:
            weights = {k: v.clone() for k, v in self.model.policy.state_dict().items()}
            self.taken.append((self.num_timesteps, now - self.began - self.paused, weights))
            self.paused += time.perf_counter() - now


def greedy_return(model: RecurrentPPO) -> float:
    env = make_vec_env(make_env, EPISODES, seed=1_000_000)
    obs, state = env.reset(), None
    first, totals, done = np.ones(EPISODES, bool), np.zeros(EPISODES), np.zeros(EPISODES, bool)
    while not done.all():
        action, state = model.predict(obs, state=state, episode_start=first, deterministic=True)
        obs, reward, first, _ = env.step(action)
        totals += reward * ~done
        done |= first
    env.close()
    return float(totals.mean())


def main() -> None:
    seed, steps, anchor = int(sys.argv[1]), int(sys.argv[2]), "--anchor" in sys.argv
    torch.set_num_threads(2)
    env = make_vec_env(make_env, 8, seed=seed)
    model = RecurrentPPO(
        "MlpLstmPolicy",
        env,
        n_steps=128,
        batch_size=256,
        n_epochs=10,
        policy_kwargs={"lstm_hidden_size": 64, "enable_critic_lstm": True},
        seed=seed,
        device="cpu",
    )
    snapshots = Snapshots(keep=anchor)
    model.learn(steps, callback=snapshots)
    seconds = time.perf_counter() - snapshots.began - snapshots.paused
    result = {
        "seed": seed,
        "steps": model.num_timesteps,
        "seconds": seconds,
        "steps_per_s": model.num_timesteps / seconds,
    }
    for at_steps, at_seconds, weights in snapshots.taken:
        model.policy.load_state_dict(weights)
        if greedy_return(model) >= 450:
            result |= {"reached_450_steps": at_steps, "reached_450_s": at_seconds}
            break
    print(json.dumps(result))


main()
