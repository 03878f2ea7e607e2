"""Train small runs as one rank of a torchrun job, or alone: `torchrun --nproc-per-node 2 rank_job.py FOLDER [NAME ...]`.

All runs are trained one after the other in the same processes, because starting a rank takes longer than a run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from holdfast.config import load_settings
from holdfast.config.ranks import plan_ranks, started_ranks
from holdfast.ranks import Group
from holdfast.ranks.distributed import Ranks
from holdfast.trainer import loop

SHARDS = 4
SMALL = [
    f"trainer.shards={SHARDS}",
    "trainer.horizon=8",
    "trainer.update_epochs=2",
    "progress=off",
    "trainer.keep.last=1000",
]
MEMORY = ["env=memory", "env.num_envs=4", "env.rooms=4", "trainer.total_timesteps=512", *SMALL]
CARTPOLE = ["env=gym:CartPole-v1", "env.hide=[1,3]", "env.num_envs=8", "policy.hidden=32", *SMALL]
CARTPOLE += ["trainer.total_timesteps=1024", "trainer.batch_size=128"]
# reports a number in info, is evaluated while it trains, and ends before its last step
FROZEN_LAKE = ["env=gym:FrozenLake-v1", "env.num_envs=8", "policy.hidden=32", *SMALL, "trainer.total_timesteps=4096"]
FROZEN_LAKE += ["eval.interval=2", "eval.episodes=8", "trainer.stop_at_return=0"]
SPREAD = ["env=pettingzoo:mpe2.simple_spread_v3", "env.num_envs=4", "policy.hidden=16", *SMALL]
SPREAD += ["trainer.total_timesteps=576"]

RUNS: dict[str, list[str]] = {
    "memory-lstm": MEMORY,
    "memory-gru-graph": [*MEMORY, "agent=fast", "policy.core=gru"],
    "memory-attention-mingru": [*MEMORY, "py_agent=latent_attn_tiny", "policy.core=mingru"],
    "memory-workers": [*MEMORY, "trainer.num_workers=2"],
    "memory-prioritized": [*MEMORY, "trainer.prioritized.alpha=0.7"],
    "cartpole-lstm": CARTPOLE,
    "cartpole-gru-vtrace": [*CARTPOLE, "policy.core=gru", "trainer.advantage=vtrace"],
    "cartpole-mingru-kl": [*CARTPOLE, "policy.core=mingru", "trainer.target_kl=1e-5", "trainer.lr=0.01"],
    "cartpole-raw-workers": [*CARTPOLE, "policy.normalize_obs=off", "trainer.num_workers=2"],
    "cartpole-prioritized-vtrace": [*CARTPOLE, "trainer.prioritized.alpha=1", "trainer.advantage=vtrace"],
    "cartpole-refreshed": [*CARTPOLE, "trainer.start_states=refreshed"],
    "cartpole-burn-in": [*CARTPOLE, "trainer.burn_in=3", "trainer.normalize_advantage=off"],
    "cartpole-rewards": [*CARTPOLE, "trainer.normalize_rewards=on"],
    "cartpole-regularised": [*CARTPOLE, "trainer.l2_init=0.1", "trainer.weight_clip=2"],
    "cartpole-sees": [*CARTPOLE, "policy.sees=[action,reward]", "trainer.burn_in=3"],
    "cartpole-memory-reset": [*CARTPOLE, "trainer.reset_memory_each_rollout=on", "trainer.value_clip=0"],
    "frozenlake-goal": FROZEN_LAKE,
    "spread-lstm": SPREAD,
    "spread-gru": [*SPREAD, "policy.core=gru"],
}


def train_all(folder: Path, names: list[str], group: Group) -> None:
    for name in names:
        words = {word.partition("=")[0]: word for word in RUNS[name]}  # the last word of each key
        settings = load_settings([*words.values(), f"runs_dir={folder}", f"run={name}"])
        loop.train(plan_ranks(settings, group.size), None, group)


def main() -> None:
    folder, *names = sys.argv[1:]
    group = Ranks.join(torch.device("cpu"), 60.0) if started_ranks() > 1 else Group()
    train_all(Path(folder), names or list(RUNS), group)
    group.close(failed=False)


if __name__ == "__main__":
    main()
