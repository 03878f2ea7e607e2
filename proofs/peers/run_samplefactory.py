"""Sample Factory's APPO with an LSTM core, synchronous and in one process (`serial_mode`), with its own vectorisation.

Sample Factory is made for many cores: this is not where it is at its best. It asks for Gymnasium below 1.0.
"""

from __future__ import annotations

import logging
import tempfile
from typing import Any

import common
import torch
from cartpole import make_env
from common import Clock, parse_options, print_result
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from sample_factory.utils.utils import log


class AfterUpdate(AlgoObserver):
    def __init__(self, clock: Clock, batch: int):
        self.clock, self.batch = clock, batch

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        if self.clock.update_done(training_iteration_since_resume * self.batch):
            runner.cfg.train_for_seconds = -1  # the runner looks at this next, and stops


def make_one(*_: Any, **__: Any) -> Any:
    return make_env()


def make_settings(num_envs: int, seed: int, folder: str) -> Any:
    batch = num_envs * common.HORIZON
    settings = {
        "env": "cartpole_no_velocity",
        "experiment": "speed",
        "train_dir": folder,
        "seed": seed,
        "device": "cpu",
        "serial_mode": True,
        "async_rl": False,
        "num_workers": 1,
        "worker_num_splits": 1,
        "num_envs_per_worker": num_envs,
        "num_batches_to_accumulate": 1,
        "rollout": common.HORIZON,
        "recurrence": common.HORIZON,
        "batch_size": batch // common.MINIBATCHES,
        "num_batches_per_epoch": common.MINIBATCHES,
        "num_epochs": common.EPOCHS,
        "learning_rate": common.LR,
        "gamma": common.GAMMA,
        "gae_lambda": common.GAE_LAMBDA,
        "ppo_clip_ratio": common.CLIP,
        "ppo_clip_value": 1e6,
        "value_loss_coeff": common.VALUE_COEF,
        "exploration_loss_coeff": common.ENTROPY_COEF,
        "max_grad_norm": common.MAX_GRAD_NORM,
        "normalize_input": False,
        "normalize_returns": False,
        "use_rnn": True,
        "rnn_type": "lstm",
        "rnn_size": common.HIDDEN,
        "nonlinearity": "tanh",
        "decorrelate_experience_max_seconds": 0,
        "decorrelate_envs_on_one_worker": False,
        "log_to_file": False,
        "save_every_sec": 10**6,
        "save_best_every_sec": 10**6,
        "experiment_summaries_interval": 10**6,
        "set_workers_cpu_affinity": False,
    }
    words = [f"--{key}={value}" for key, value in settings.items()]
    parser, _ = parse_sf_args([*words, "--encoder_mlp_layers", str(common.HIDDEN)])
    return parse_full_cfg(parser, [*words, "--encoder_mlp_layers", str(common.HIDDEN)])


def main() -> None:
    options = parse_options()
    log.setLevel(logging.ERROR)
    register_env("cartpole_no_velocity", make_one)
    with tempfile.TemporaryDirectory() as folder:
        settings = make_settings(options.envs, options.seed, folder)
        _, runner = make_runner(settings)
        clock = Clock(options)
        runner.register_observer(AfterUpdate(clock, options.envs * common.HORIZON))
        torch.set_num_threads(1)
        runner.init()
        runner.run()
    print_result(clock.figures(), ("torch", "sample-factory", "gymnasium"))


if __name__ == "__main__":  # a spawned process imports this file
    main()
