"""sb3-contrib's RecurrentPPO.

speed: one LSTM shared by actor and critic, as in the other scripts. `goal`: its defaults, except for 8 environments, batches of
256 and an LSTM of 64 (the default of 256 is slower). `goal-zoo`: the RL Zoo's tuned settings for CartPoleNoVel-v1
(DLR-RM/rl-baselines3-zoo, hyperparams/ppo_lstm.yml).
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import common
import numpy as np
import torch
from cartpole import make_env
from common import Clock, GoalClock, parse_options, print_result
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
from torch import Tensor, nn


class Encoder(BaseFeaturesExtractor):
    def __init__(self, observation_space: Any):
        super().__init__(observation_space, common.HIDDEN)
        self.layers = nn.Sequential(nn.Linear(2, common.HIDDEN), nn.Tanh())

    def forward(self, observations: Tensor) -> Tensor:
        return self.layers(observations)


class AfterUpdate(BaseCallback):
    """Stop when the clock says so. It is asked after each update: the next rollout starts then."""

    def __init__(self, clock: Clock | GoalClock):
        super().__init__()
        self.clock, self.stop = clock, False

    def _on_rollout_start(self) -> None:
        self.stop = self.num_timesteps > 0 and self.clock.update_done(self.num_timesteps)

    def _on_step(self) -> bool:
        return not self.stop


def make_speed(env: VecEnv, options: Namespace) -> RecurrentPPO:
    network = {
        "features_extractor_class": Encoder,
        "net_arch": {"pi": [], "vf": []},
        "lstm_hidden_size": common.HIDDEN,
        "shared_lstm": True,
        "enable_critic_lstm": False,
    }
    return RecurrentPPO(
        "MlpLstmPolicy",
        env,
        n_steps=common.HORIZON,
        batch_size=options.envs * common.HORIZON // common.MINIBATCHES,
        n_epochs=common.EPOCHS,
        learning_rate=common.LR,
        gamma=common.GAMMA,
        gae_lambda=common.GAE_LAMBDA,
        clip_range=common.CLIP,
        vf_coef=common.VALUE_COEF,
        ent_coef=common.ENTROPY_COEF,
        max_grad_norm=common.MAX_GRAD_NORM,
        policy_kwargs=network,
        seed=options.seed,
        device="cpu",
    )


def make_defaults(env: VecEnv, options: Namespace) -> RecurrentPPO:
    network = {"lstm_hidden_size": 64}
    return RecurrentPPO("MlpLstmPolicy", env, batch_size=256, policy_kwargs=network, seed=options.seed, device="cpu")


def make_zoo(env: VecEnv, options: Namespace) -> RecurrentPPO:
    network = {
        "ortho_init": False,
        "activation_fn": nn.ReLU,
        "lstm_hidden_size": 64,
        "enable_critic_lstm": True,
        "net_arch": {"pi": [64], "vf": [64]},
    }
    return RecurrentPPO(
        "MlpLstmPolicy",
        env,
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=lambda left: left * 0.001,
        clip_range=lambda left: left * 0.2,
        policy_kwargs=network,
        seed=options.seed,
        device="cpu",
    )


def greedy_return(model: RecurrentPPO) -> float:
    """Mean return of 20 greedy episodes, with the normalisation of observations that training uses, if any."""
    env = DummyVecEnv([make_env] * common.GOAL_EPISODES)
    env.seed(1_000_000)
    normalizer = model.get_vec_normalize_env()
    obs, state = env.reset(), None
    first, done, totals = (
        np.ones(common.GOAL_EPISODES, bool),
        np.zeros(common.GOAL_EPISODES, bool),
        np.zeros(common.GOAL_EPISODES),
    )
    while not done.all():
        seen = obs if normalizer is None else normalizer.normalize_obs(obs)
        action, state = model.predict(seen, state=state, episode_start=first, deterministic=True)
        obs, reward, first, _ = env.step(action)
        totals += reward * ~done
        done |= first
    env.close()
    return float(totals.mean())


def main() -> None:
    options = parse_options(("speed", "goal", "goal-zoo"))
    torch.set_num_threads(1)
    env: VecEnv = DummyVecEnv([make_env] * options.envs)
    if options.task == "speed":
        model = make_speed(env, options)
        clock = Clock(options)
        model.learn(10**9, callback=AfterUpdate(clock))
    else:
        if options.task == "goal-zoo":
            env = VecNormalize(env, gamma=0.98)
        model = (make_zoo if options.task == "goal-zoo" else make_defaults)(env, options)
        clock = GoalClock(options, lambda: greedy_return(model))
        # The rates are scheduled over this many steps, also where fewer are allowed.
        model.learn(100_000 if options.task == "goal-zoo" else common.GOAL_STEPS, callback=AfterUpdate(clock))
    print_result(clock.figures(), ("torch", "sb3-contrib", "gymnasium"))


main()
