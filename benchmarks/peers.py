"""`make bench-peers`: Holdfast and sb3-contrib's RecurrentPPO side by side on CartPole without velocities.

Two figures: steps per second at the peer's own settings (8 environments, 128 steps, batch 256, 10 epochs, LSTM 64), alternating runs; and
training seconds until 20 greedy episodes average 450, each with its own settings. Evaluation is not counted on either side.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from holdfast.config import load_settings
from holdfast.evaluate import evaluate_run
from holdfast.runs.folder import read_metrics
from holdfast.trainer import train

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-peers"
# The same range of torch as Holdfast's own, so that both sides run on the same kernels.
PACKAGES = ["torch>=2.10,<2.14", "sb3-contrib>=2.4"]

PEER_SETTINGS = [
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


def install_peer() -> Path:
    python = VENV / "bin" / "python"
    if not python.exists():
        print(f"Installing sb3-contrib into {VENV.name} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def peer(python: Path, seed: int, steps: int, *flags: str) -> dict:
    command = [str(python), str(ROOT / "benchmarks" / "sb3_cartpole.py"), str(seed), str(steps), *flags]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def ours(words: list[str], folder: str, seed: int, run: str) -> Path:
    return train(load_settings([*words, "progress=off", f"runs_dir={folder}", f"run={run}", f"seed={seed}"])).run


def reached(run: Path, target: float) -> tuple[int, float] | None:
    """Agent steps and training seconds at the first checkpoint whose greedy mean is at the target."""
    rows = {row["update"]: row for row in read_metrics(run)}
    for checkpoint in sorted((run / "checkpoints").iterdir()):
        if evaluate_run(run, episodes=20, checkpoint=checkpoint.name).return_mean >= target:
            row = rows[int(checkpoint.name)]
            return row["agent_steps"], row["wall_s"]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--speed-steps", type=int, default=12_288)
    parser.add_argument(
        "--most-steps", type=int, default=100_000, help="give the peer at most so many steps to reach 450"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    python = install_peer()
    speed, anchor = [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            theirs = peer(python, seed, options.speed_steps)["steps_per_s"]
            run = ours(
                [*PEER_SETTINGS, f"trainer.total_timesteps={options.speed_steps}"],
                folder,
                seed,
                f"speed{seed}",
            )
            mine = json.loads((run / "summary.json").read_text())["sps"]
            speed.append({"seed": seed, "peer": theirs, "holdfast": mine, "ratio": mine / theirs})
            print(
                f"seed {seed}: {theirs:7.0f} steps/s RecurrentPPO, {mine:7.0f} Holdfast, {mine / theirs:.1f}x",
                flush=True,
            )
        for seed in range(options.seeds):
            theirs = peer(python, seed, options.most_steps, "--anchor")
            words = ["settings=cartpole_no_velocity", "trainer.checkpoint_interval=1", "trainer.keep.every=1"]
            mine = reached(ours(words, folder, seed, f"anchor{seed}"), 450.0)
            peer_s = theirs.get("reached_450_s")
            row = {
                "seed": seed,
                "peer_s": peer_s,
                "peer_steps": theirs.get("reached_450_steps"),
                "peer_gave_up_s": None if peer_s else theirs["seconds"],
                "holdfast_steps": mine and mine[0],
                "holdfast_s": mine and mine[1],
            }
            if mine:
                row["sooner"] = (peer_s or theirs["seconds"]) / mine[1]
            anchor.append(row)
            print(f"seed {seed}: {row}", flush=True)
    result = {"steps_per_s": speed, "reach_450": anchor}
    print(f"steps/s ratio, median of {options.seeds}: {statistics.median(r['ratio'] for r in speed):.1f}x")
    sooner = [r["sooner"] for r in anchor if "sooner" in r]
    print(f"sooner at 450, median of {len(sooner)}: {statistics.median(sooner) if sooner else 0:.1f}x")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
