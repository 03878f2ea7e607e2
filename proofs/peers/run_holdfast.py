"""Holdfast's side of the comparison. `goal` trains settings=cartpole_no_velocity, the settings that ship for this task."""

from __future__ import annotations

import math
import tempfile
from argparse import Namespace
from pathlib import Path

import common
from common import Clock, parse_options, print_result

from holdfast.config import load_settings
from holdfast.evaluate import evaluate_run
from holdfast.runs import read_metrics
from holdfast.trainer import train


def run(folder: str, name: str, seed: int, *words: str) -> Path:
    common = ["trainer.threads=1", "progress=off", f"seed={seed}", f"runs_dir={folder}", f"run={name}"]
    return train(load_settings([*words, *common])).run


def measure_speed(options: Namespace, folder: str) -> dict:
    batch = options.envs * common.HORIZON
    words = [
        "env=gym:CartPole-v1",
        "env.hide=[1,3]",
        f"env.num_envs={options.envs}",
        f"trainer.horizon={common.HORIZON}",
        f"trainer.batch_size={batch}",
        f"trainer.minibatch_size={batch // common.MINIBATCHES}",
        f"trainer.update_epochs={common.EPOCHS}",
        f"trainer.lr={common.LR}",
        f"trainer.gamma={common.GAMMA}",
        f"trainer.gae_lambda={common.GAE_LAMBDA}",
        f"trainer.clip={common.CLIP}",
        "trainer.value_clip=0",
        f"trainer.value_coef={common.VALUE_COEF}",
        f"trainer.entropy_coef={common.ENTROPY_COEF}",
        f"trainer.max_grad_norm={common.MAX_GRAD_NORM}",
        "trainer.checkpoint_interval=0",
        f"policy.hidden={common.HIDDEN}",
        f"policy.encoder=[{common.HIDDEN}]",
        "policy.heads=[]",
        "policy.normalize_obs=false",
    ]
    trial = read_metrics(run(folder, "trial", options.seed, *words, f"trainer.total_timesteps={2 * batch}"))
    update_seconds = batch / trial[-1]["sps"]
    # Twice the time it should take: the clock has to run out before the training ends.
    updates = 3 + math.ceil(2 * (options.warm_up + options.seconds) / update_seconds)
    rows = read_metrics(run(folder, "speed", options.seed, *words, f"trainer.total_timesteps={updates * batch}"))
    clock = Clock(options)
    for row in rows:
        if clock.update_done(row["agent_steps"], clock.began + row["wall_s"]):
            break
    return clock.figures()


def measure_goal(options: Namespace, folder: str) -> dict:
    """Train to the end with a checkpoint per update (1,024 steps), then find the first one that reaches the goal."""
    words = ["settings=cartpole_no_velocity", "trainer.checkpoint_interval=1", "trainer.keep.every=1"]
    path = run(folder, "goal", options.seed, *words, f"trainer.total_timesteps={options.steps}")
    rows = read_metrics(path)
    for row, checkpoint in zip(rows, sorted((path / "checkpoints").iterdir()), strict=True):
        if evaluate_run(path, episodes=common.GOAL_EPISODES, checkpoint=checkpoint.name).return_mean >= common.GOAL:
            return {"reached": True, "steps": row["agent_steps"], "seconds": row["wall_s"]}
    return {"reached": False, "steps": rows[-1]["agent_steps"], "seconds": rows[-1]["wall_s"]}


def main() -> None:
    options = parse_options(("speed", "goal"))
    with tempfile.TemporaryDirectory() as folder:
        figures = (measure_speed if options.task == "speed" else measure_goal)(options, folder)
    print_result(figures, ("torch", "gymnasium"))


main()
