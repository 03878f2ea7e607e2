"""skrl's PPO_RNN over Gymnasium's SyncVectorEnv, with one model for actor and critic and sequences as long as the rollout.

The model computes what both heads need once per call of the policy, and learns in chunks that end where an episode ends in any
sequence: skrl's documentation does both.
"""

from __future__ import annotations

from typing import Any

import common
import torch
from cartpole import make_vector_env
from common import Clock, parse_options, print_result
from skrl.agents.torch.ppo import PPO_CFG, PPO_RNN
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed
from torch import Tensor, nn


class ActorCritic(CategoricalMixin, DeterministicMixin, Model):
    def __init__(self, env: Any):
        Model.__init__(self, observation_space=env.observation_space, action_space=env.action_space, device="cpu")
        CategoricalMixin.__init__(self, unnormalized_log_prob=True, role="policy")
        DeterministicMixin.__init__(self, role="value")
        self.num_envs = env.num_envs
        self.encoder = nn.Sequential(nn.Linear(2, common.HIDDEN), nn.Tanh())
        self.lstm = nn.LSTM(common.HIDDEN, common.HIDDEN, batch_first=True)
        self.actor, self.critic = nn.Linear(common.HIDDEN, 2), nn.Linear(common.HIDDEN, 1)
        self.features: Tensor | None = None  # kept from the policy's call for the value's

    def get_specification(self) -> dict[str, Any]:
        size = (1, self.num_envs, common.HIDDEN)
        return {"rnn": {"sequence_length": common.HORIZON, "sizes": [size, size]}}

    def act(self, inputs: dict[str, Any], *, role: str = "") -> tuple[Tensor, dict[str, Any]]:
        mixin = CategoricalMixin if role == "policy" else DeterministicMixin
        return mixin.act(self, inputs, role=role)

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        if role == "value" and self.features is not None:
            features, self.features = self.features, None
            return self.critic(features), {}
        features, state = self.run_lstm(inputs)
        if role == "value":
            return self.critic(features), {"rnn": state}
        self.features = features
        return self.actor(features), {"rnn": state}

    def run_lstm(self, inputs: dict[str, Any]) -> tuple[Tensor, list[Tensor]]:
        x, (h, c) = self.encoder(inputs["observations"]), inputs["rnn"]
        if not self.training:
            y, state = self.lstm(x.unsqueeze(1), (h, c))
            return y.squeeze(1), list(state)
        x = x.view(-1, common.HORIZON, common.HIDDEN)
        # The state of every step is stored; a sequence starts from that of its first one.
        h, c = (s.view(1, -1, common.HORIZON, common.HIDDEN)[:, :, 0].contiguous() for s in (h, c))
        done = (inputs["terminated"] | inputs["truncated"]).view(-1, common.HORIZON)
        ends = [t + 1 for t in done[:, :-1].any(0).nonzero().flatten().tolist()]
        outputs = []
        for start, end in zip([0, *ends], [*ends, common.HORIZON], strict=True):
            y, (h, c) = self.lstm(x[:, start:end], (h, c))
            outputs.append(y)
            alive = ~done[:, end - 1, None]
            h, c = h * alive, c * alive
        return torch.cat(outputs, 1).flatten(0, 1), [h, c]


class MeasuredPPO(PPO_RNN):
    clock: Clock
    num_envs: int

    def update(self, *, timestep: int, timesteps: int) -> None:
        super().update(timestep=timestep, timesteps=timesteps)
        if self.clock.update_done((timestep + 1) * self.num_envs):
            raise StopIteration


def main() -> None:
    options = parse_options()
    torch.set_num_threads(1)
    set_seed(options.seed)
    env = wrap_env(make_vector_env(options.envs), verbose=False)
    model = ActorCritic(env)
    settings = PPO_CFG(
        rollouts=common.HORIZON,
        learning_epochs=common.EPOCHS,
        mini_batches=common.MINIBATCHES,
        discount_factor=common.GAMMA,
        gae_lambda=common.GAE_LAMBDA,
        learning_rate=common.LR,
        grad_norm_clip=common.MAX_GRAD_NORM,
        ratio_clip=common.CLIP,
        value_clip=0,
        entropy_loss_scale=common.ENTROPY_COEF,
        value_loss_scale=common.VALUE_COEF,
    )
    settings.experiment.write_interval = settings.experiment.checkpoint_interval = 0
    agent = MeasuredPPO(
        models={"policy": model, "value": model},
        memory=RandomMemory(memory_size=common.HORIZON, num_envs=options.envs, device="cpu"),
        cfg=settings,
        observation_space=env.observation_space,
        action_space=env.action_space,
        device="cpu",
    )
    trainer_settings = {"timesteps": 10**9, "headless": True, "disable_progressbar": True}
    trainer = SequentialTrainer(env=env, agents=agent, cfg=trainer_settings)
    agent.clock, agent.num_envs = Clock(options), options.envs
    try:
        trainer.train()
    except StopIteration:
        print_result(agent.clock.figures(), ("torch", "skrl", "gymnasium"))


main()
