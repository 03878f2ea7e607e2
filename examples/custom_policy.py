"""A custom recurrent policy, trained on CartPole without velocities.

With the trainer: holdfast train settings=cartpole_no_velocity py_agent=examples/custom_policy.py:MyPolicy
With the loop below: python examples/custom_policy.py [updates]
"""

import sys

import torch
from torch import nn

from holdfast.config.batches import plan_batches
from holdfast.config.settings import TrainerSettings
from holdfast.envs import GymEnv, make_world
from holdfast.policies import LSTMWrapper
from holdfast.ppo import Experience
from holdfast.rollout import Collector, RecentEpisodes
from holdfast.trainer.learner import Learner


class MyPolicy(LSTMWrapper):
    """Encodes observations and decodes actions; `LSTMWrapper` handles the memory."""

    def __init__(self, spec, width=32, hidden_size=64, num_layers=1, **memory):
        super().__init__(spec, width, hidden_size, num_layers, **memory)
        self.encoder = nn.Linear(spec.obs.shape[0], width)
        self.actor = nn.Linear(hidden_size, len(spec.actions.names))
        self.critic = nn.Linear(hidden_size, 1)

    def encode_observations(self, observations):
        return torch.tanh(self.encoder(observations))

    def decode_actions(self, hidden):
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


def main(updates: int) -> None:
    torch.manual_seed(0)
    settings = TrainerSettings(horizon=32, update_epochs=4, gamma=0.99, gae_lambda=0.95, clip=0.2, reward_scale=0.05)
    with make_world(GymEnv(name="gym:CartPole-v1", num_envs=16, hide=[1, 3])) as world:
        policy = MyPolicy(world.world_spec)
        plan = plan_batches(settings, world.num_slots)
        spec = {**policy.get_agent_experience_spec(), "actions": ((), "int64")}
        experience = Experience(spec, world.num_slots, plan.horizon, plan.segments_per_slot, policy.state_shapes)
        collector = Collector(world, policy, experience)
        learner = Learner(policy, settings, plan, torch.Generator().manual_seed(0))
        collector.start(seed=0)
        recent = RecentEpisodes()
        for update in range(1, updates + 1):
            recent.add(collector.collect().episodes)
            learned = learner.update(experience, progress=update / updates)
            if update % 10 == 0 or update == updates:
                steps, mean = update * plan.batch_size, recent.mean_return
                print(f"{steps:7,} steps  return {mean:6.1f}  parity {learned.parity.max_log_ratio:.1e}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
