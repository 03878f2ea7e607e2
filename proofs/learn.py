"""`make learn`: train with several seeds, evaluate greedily and check that each run reaches its goal.

The ready-made settings, and worlds with the default settings: `env=` and a number of steps, no other key.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from pathlib import Path

from holdfast.config import load_settings
from holdfast.evaluate import evaluate_run
from holdfast.runs.folder import read_metrics
from holdfast.trainer import train

# settings: extra words, and the mean return to reach (or, for the control without memory, to stay below)
GOALS = {
    "quickstart": ([], ">=", 0.95),
    "quickstart without memory": (["policy.core=none"], "<", 0.65),
    "cartpole_no_velocity": ([], ">=", 450.0),
    "pendulum_no_velocity": ([], ">=", -250.0),
    "memory": ([], ">=", 0.95),
    "collect": ([], ">=", 3.0),
    "env=arena": (["trainer.total_timesteps=3_000_000"], ">=", 15.0),
    "env=gym:CartPole-v1": (["trainer.total_timesteps=100_000"], ">=", 475.0),
    "env=gym:Acrobot-v1": (["trainer.total_timesteps=200_000"], ">=", -100.0),
    "env=gym:Pendulum-v1": (["trainer.total_timesteps=300_000"], ">=", -300.0),
    "env=gym:MiniGrid-MemoryS7-v0": (["trainer.total_timesteps=1_000_000"], ">=", 0.9),
    "env=gym:popgym-RepeatPreviousEasy-v0": (["trainer.total_timesteps=500_000"], ">=", 0.95),
    "env=gym:popgym-RepeatFirstEasy-v0": (["trainer.total_timesteps=500_000"], ">=", 0.95),
}
# Greedy episodes to evaluate. Pendulum's returns have a deviation of 100: the mean of 20 would be uncertain by 25.
EPISODES = {"cartpole_no_velocity": 20, "pendulum_no_velocity": 100}
FEW = 50  # for the worlds with default settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="settings to train (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--unit",
        type=float,
        default=1.0,
        help="multiply all rewards of MettaGrid worlds, to show that it does not matter",
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.unit != 1.0:
        change_unit(options.unit)
    rows = []
    print(
        f"{'settings':40} {'seed':>4} {'steps':>8} {'seconds':>8} {'last 100':>9} {'greedy':>9} {'parity':>8}  goal",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or GOALS:
            words, relation, goal = GOALS[name]
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                chosen = name if name.startswith("env=") else f"settings={name.split()[0]}"
                run = re.sub(r"[^\w.-]", "-", f"{name}-{seed}")
                run_words = [chosen, *words, f"seed={seed}", f"runs_dir={folder}", f"run={run}", "progress=off"]
                result = train(load_settings(run_words))
                episodes = EPISODES.get(name, FEW if name.startswith("env=") else 200)
                greedy = evaluate_run(result.run, episodes=episodes).return_mean / options.unit
                summary = result.summary
                last = summary["episode_return_mean"] / options.unit
                figure = greedy if "no_velocity" in name else last
                met = figure >= goal if relation == ">=" else figure < goal
                parity = max(row["parity_max_abs_logratio"] for row in read_metrics(result.run))
                row = {
                    "settings": name,
                    "seed": seed,
                    "steps": summary["agent_steps"],
                    "seconds": summary["wall_s"],
                }
                row |= {"last_100": last, "greedy": greedy, "parity": parity, "met": met}
                rows.append(row)
                print(
                    f"{name:40} {seed:4} {row['steps']:8} {row['seconds']:8.1f} {last:9.3f} {greedy:9.3f} {parity:8.1e}"
                    f"  {relation} {goal} {'met' if met else 'MISSED'}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))
    raise SystemExit(0 if all(row["met"] for row in rows) else 1)


def change_unit(unit: float) -> None:
    """Multiply the rewards of MettaGrid's simulations, as if the world had been written in another unit."""
    from holdfast.envs.mettagrid.adapter import MettaGridWorld

    step = MettaGridWorld._step

    def scaled(self: MettaGridWorld, envs: range) -> None:
        step(self, envs)
        self.buffers.rewards[self.slots_of(envs.start).start : self.slots_of(envs.stop - 1).stop] *= unit

    MettaGridWorld._step = scaled


if __name__ == "__main__":
    main()
