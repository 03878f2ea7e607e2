"""`make learn`: train the ready-made settings with several seeds, evaluate greedily and check that each reaches its goal."""

from __future__ import annotations

import argparse
import json
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
    "arena": ([], ">=", 0.5),
}
# Greedy episodes to evaluate. Pendulum's returns have a deviation of 100: the mean of 20 would be uncertain by 25.
EPISODES = {"cartpole_no_velocity": 20, "pendulum_no_velocity": 100}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="settings to train (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print(
        f"{'settings':28} {'seed':>4} {'steps':>8} {'seconds':>8} {'last 100':>9} {'greedy':>9} {'parity':>8}  goal",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or GOALS:
            words, relation, goal = GOALS[name]
            for seed in range(options.seeds):
                run_words = [f"settings={name.split()[0]}", *words, f"seed={seed}", f"runs_dir={folder}"]
                result = train(load_settings([*run_words, "progress=off", f"run={name.replace(' ', '-')}-{seed}"]))
                greedy = evaluate_run(result.run, episodes=EPISODES.get(name, 200)).return_mean
                last, summary = result.summary["episode_return_mean"], result.summary
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
                    f"{name:28} {seed:4} {row['steps']:8} {row['seconds']:8.1f} {last:9.3f} {greedy:9.3f} {parity:8.1e}"
                    f"  {relation} {goal} {'met' if met else 'MISSED'}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))
    raise SystemExit(0 if all(row["met"] for row in rows) else 1)


if __name__ == "__main__":
    main()
