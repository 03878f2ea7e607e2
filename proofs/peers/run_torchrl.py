"""TorchRL: LSTMModule, its collector, GAE and ClipPPOLoss, over Gymnasium's SyncVectorEnv.

Actor and critic share encoder and LSTM. Values come from acting, and the loss runs the LSTM once: the critic's head reads what
the actor has left in the TensorDict.
"""

from __future__ import annotations

import common
import torch
from cartpole import make_vector_env
from common import Clock, parse_options, print_result
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.envs import Compose, GymWrapper, InitTracker, TransformedEnv
from torchrl.modules import ActorValueOperator, LSTMModule, ProbabilisticActor, ValueOperator, set_recurrent_mode
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value.functional import vec_generalized_advantage_estimate


def make_policy() -> ActorValueOperator:
    encoder = TensorDictModule(
        nn.Sequential(nn.Linear(2, common.HIDDEN), nn.Tanh()), in_keys=["observation"], out_keys=["encoded"]
    )
    lstm = LSTMModule(common.HIDDEN, common.HIDDEN, in_key="encoded", out_key="features")
    actor = ProbabilisticActor(
        TensorDictModule(nn.Linear(common.HIDDEN, 2), in_keys=["features"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=Categorical,
        return_log_prob=True,
    )
    critic = ValueOperator(nn.Linear(common.HIDDEN, 1), in_keys=["features"])
    return ActorValueOperator(TensorDictSequential(encoder, lstm), actor, critic)


@torch.no_grad()
def add_advantages(policy: ActorValueOperator, data: TensorDict) -> None:
    """GAE over data [envs, common.HORIZON], with the values the policy gave while acting."""
    last = data["next"][:, -1].select("observation", "recurrent_state_h", "recurrent_state_c")
    last["is_init"] = torch.zeros(last.shape[0], 1, dtype=torch.bool)
    with set_recurrent_mode(False):
        last_value = policy.get_value_operator()(last)["state_value"]
    values = data["state_value"]
    next_values = torch.cat([values[:, 1:], last_value.unsqueeze(1)], 1)
    step = data["next"]
    data["advantage"], data["value_target"] = vec_generalized_advantage_estimate(
        common.GAMMA, common.GAE_LAMBDA, values, next_values, step["reward"], step["done"], step["terminated"]
    )


def main() -> None:
    options = parse_options()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    policy = make_policy()
    env = TransformedEnv(
        GymWrapper(make_vector_env(options.envs), categorical_action_encoding=True),
        Compose(InitTracker(), policy[0][1].make_tensordict_primer()),
    )
    env.set_seed(options.seed)
    loss_module = ClipPPOLoss(
        policy.get_policy_operator(),
        policy.get_value_head(),
        clip_epsilon=common.CLIP,
        entropy_bonus=False,
        entropy_coeff=common.ENTROPY_COEF,
        critic_coeff=common.VALUE_COEF,
        normalize_advantage=True,
        loss_critic_type="l2",
    )
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=common.LR)
    batch = options.envs * common.HORIZON
    collector = Collector(env, policy, frames_per_batch=batch, total_frames=-1)
    clock, steps = Clock(options), 0
    for data in collector:
        add_advantages(policy, data)
        data = data.exclude("logits", "features", "encoded", ("next", "observation"))
        for _ in range(common.EPOCHS):
            for rows in torch.randperm(options.envs).chunk(common.MINIBATCHES):
                with set_recurrent_mode(True):
                    losses = loss_module(data[rows])
                optimizer.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"]).backward()
                nn.utils.clip_grad_norm_(loss_module.parameters(), common.MAX_GRAD_NORM)
                optimizer.step()
        steps += batch
        if clock.update_done(steps):
            break
    collector.shutdown()
    print_result(clock.figures(), ("torch", "torchrl", "gymnasium"))


main()
