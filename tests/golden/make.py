"""Makes what is kept here: `python tests/golden/make.py numbers` or `python tests/golden/make.py checkpoint`.

numbers.json     metrics of two short runs, and the SHA-256 of their weights on machines that were tried. Made anew when a change
                 of numbers is meant; CHANGELOG.md says which ("Changes to numbers").
checkpoint-N/    a run folder with a checkpoint of format N, and the returns it is evaluated to. Made once per format, never again:
                 it stands for what users have on their disks.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.checkpoint.store import FORMAT
from holdfast.config import load_settings
from holdfast.evaluate import evaluate_run
from holdfast.runs import TIMING, read_metrics
from holdfast.trainer import train

HERE = Path(__file__).parent
NUMBERS = HERE / "numbers.json"
ROUNDING = {"parity_max_abs_logratio", "parity_max_abs_value"}  # the noise itself
REPORTED = "info/"  # numbers of the world, which depend on the version of its package
COMMON = ["seed=11", "progress=off", "trainer.checkpoint_interval=0", "trainer.threads=1"]
# the defaults when these numbers were made
FIRST_DEFAULTS = ["trainer.horizon=16", "trainer.gamma=0.977", "trainer.gae_lambda=0.916", "trainer.clip=0.1"]
FIRST_DEFAULTS += ["trainer.value_clip=0.1", "trainer.entropy_coef=0.0021", "trainer.normalize_rewards=false"]
FIRST_DEFAULTS += ["trainer.schedule.lr.kind=constant"]
RUNS = {
    "cartpole": [
        "env=gym:CartPole-v1",
        "env.num_envs=8",
        "env.hide=[1,3]",
        "policy.hidden=16",
        "trainer.total_timesteps=1024",
        "trainer.update_epochs=2",
        *FIRST_DEFAULTS,
        *COMMON,
    ],
    "memory": [
        "env=memory",
        "env.num_envs=2",
        "env.rooms=4",
        "trainer.total_timesteps=1024",
        *COMMON,
    ],
}
TINY = [
    "env=gym:CartPole-v1",
    "env.num_envs=4",
    "policy.hidden=4",
    "policy.encoder=[4]",
    "policy.heads=[4]",
    "trainer.lr=0.01",
    "trainer.batch_size=256",
    "trainer.update_epochs=8",
    "trainer.total_timesteps=6400",
    *FIRST_DEFAULTS,
    "trainer.checkpoint_interval=0",
    "progress=off",
]


def run_numbers(name: str, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """(rows of metrics that are the same everywhere, SHA-256 of the weights) of one of the runs."""
    run = train(load_settings([*RUNS[name], f"run={name}", f"runs_dir={folder}"])).run
    rows = [
        {k: v for k, v in row.items() if k not in TIMING | ROUNDING and not k.startswith(REPORTED)}
        for row in read_metrics(run)
    ]
    weights = load_checkpoint(list_checkpoints(run / "checkpoints")[-1]).tensors["policy"]
    digest = hashlib.sha256(b"".join(k.encode() + x.numpy().tobytes() for k, x in sorted(weights.items())))
    return rows, digest.hexdigest()


def fingerprint() -> str:
    """What bits depend on. Libraries for matrices choose their kernels by the model of the processor, too."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = [re.search(rf"^{key}\s*:\s*(.+)$", info, re.M) for key in ("vendor_id", "cpu family", "model")]
    processor = "-".join(match[1] for match in found if match) or platform.processor() or "unknown"
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {processor}, threads 1"


def make_numbers() -> None:
    known = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    made: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in RUNS:
            rows, digest = run_numbers(name, Path(folder))
            old = known.get(name, {})
            kept = (
                old.get("weights", {}) if old.get("metrics") == rows else {}
            )  # of other machines, if nothing moved here
            made[name] = {"metrics": rows, "weights": {**kept, fingerprint(): digest}}
    NUMBERS.write_text(json.dumps(made, indent=1) + "\n")
    print(f"{NUMBERS} has the numbers of {', '.join(made)} for {fingerprint()}")


def make_checkpoint() -> None:
    target = HERE / f"checkpoint-{FORMAT}"
    if target.exists():
        raise SystemExit(f"{target} exists: a format that was published stays as it was. Raise FORMAT for a new one.")
    with tempfile.TemporaryDirectory() as folder:
        run = train(load_settings([*TINY, f"run={target.name}", f"runs_dir={folder}"])).run
        result = evaluate_run(run, episodes=10)
        shutil.copytree(run, target)
    text = (target / "config.yaml").read_text()
    (target / "config.yaml").write_text(re.sub(r"^runs_dir: .*$", "runs_dir: runs", text, flags=re.M))
    (target / "returns.json").write_text(json.dumps(result.returns) + "\n")
    print(f"{target}: returns {result.returns}")


if __name__ == "__main__":
    {"numbers": make_numbers, "checkpoint": make_checkpoint}[sys.argv[1] if len(sys.argv) == 2 else "help"]()
