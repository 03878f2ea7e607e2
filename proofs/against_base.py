"""Steps per second of this checkout against another one (`--base`), measured in alternation on one thread.

Each round trains a task once with either checkout, in a fresh process that imports it from `<checkout>/src`. The first updates
are left out. Prints steps/s per round, then per task the median ratio and its range over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WARM_UP = 2  # updates left out at the start of a run
# RecurrentPPO's defaults, with 8 environments and its LSTM at 64
RECURRENT_PPO = [
    "env=gym:CartPole-v1",
    "env.hide=[1,3]",
    "env.num_envs=8",
    "trainer.horizon=128",
    "trainer.batch_size=1024",
    "trainer.minibatch_size=256",
    "trainer.update_epochs=10",
    "trainer.lr=3e-4",
    "trainer.gamma=0.99",
    "trainer.gae_lambda=0.95",
    "trainer.clip=0.2",
    "trainer.value_clip=0",
    "trainer.entropy_coef=0",
    "trainer.value_coef=0.5",
    "policy.hidden=64",
]
# settings, steps in a batch, updates to measure (about five seconds)
TASKS: dict[str, tuple[list[str], int, int]] = {
    "cartpole": (RECURRENT_PPO, 1024, 10),
    "cartpole_no_velocity": (["settings=cartpole_no_velocity"], 1024, 20),
    "quickstart": (["settings=quickstart"], 1024, 20),
    "arena": (["settings=arena"], 6144, 6),
}


def measure(checkout: Path, task: str, seed: int, updates: int) -> float:
    """Steps per second of a short training of `task` with the code in `checkout`."""
    words, batch, _ = TASKS[task]
    with tempfile.TemporaryDirectory() as folder:
        words = [
            *words,
            f"trainer.total_timesteps={(WARM_UP + updates) * batch}",
            "trainer.threads=1",
            "progress=off",
            f"seed={seed}",
            f"runs_dir={folder}",
            "run=speed",
        ]
        one_thread = {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        ran = subprocess.run(
            [sys.executable, "-m", "holdfast", "train", *words],
            env={**os.environ, **one_thread},
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            sys.exit(f"{task} failed in {checkout}:\n{ran.stderr or ran.stdout}")
        rows = [json.loads(line) for line in Path(folder, "speed", "metrics.jsonl").read_text().splitlines()]
    steps = rows[-1]["agent_steps"] - rows[WARM_UP - 1]["agent_steps"]
    return steps / (rows[-1]["wall_s"] - rows[WARM_UP - 1]["wall_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the checkout to compare with")
    parser.add_argument("--here", type=Path, default=ROOT, help="the checkout to measure (default: this one)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", default=",".join(TASKS), help=f"comma-separated, of: {', '.join(TASKS)}")
    parser.add_argument("--updates", type=int, help="measured updates per run (default: about five seconds' worth)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    tasks = options.tasks.split(",")
    if unknown := [task for task in tasks if task not in TASKS]:
        parser.error(f"unknown task {unknown[0]!r}; choose from {', '.join(TASKS)}")
    checkouts = {"base": options.base.resolve(), "here": options.here.resolve()}
    for checkout in checkouts.values():
        if not (checkout / "src" / "holdfast").is_dir():
            parser.error(f"{checkout} is not a checkout of Holdfast: it has no src/holdfast")

    figures: dict[str, list[dict[str, float]]] = {task: [] for task in tasks}
    for round_ in range(options.rounds):
        for task, rows in figures.items():
            # The side that runs first changes with the round, so that a drift of the machine favours neither.
            order = list(checkouts)[:: -1 if round_ % 2 else 1]
            updates = options.updates or TASKS[task][2]
            row = {side: measure(checkouts[side], task, round_, updates) for side in order}
            rows.append({**row, "ratio": row["here"] / row["base"]})
            print(
                f"round {round_ + 1} {task:21} base {row['base']:8,.0f}  here {row['here']:8,.0f} steps/s"
                f"  {rows[-1]['ratio']:.2f}x",
                flush=True,
            )
    print(f"\n{'task':21} {'base':>8} {'here':>8} {'ratio':>6}  range over {options.rounds} rounds (medians, steps/s)")
    for task, rows in figures.items():
        base, here, ratio = (statistics.median(row[key] for row in rows) for key in ("base", "here", "ratio"))
        ratios = [row["ratio"] for row in rows]
        print(f"{task:21} {base:8,.0f} {here:8,.0f} {ratio:5.2f}x  {min(ratios):.2f}x to {max(ratios):.2f}x")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
