"""`make kills`: kill training with SIGKILL at many points, resume it each time, and compare with an uninterrupted run.

The final checkpoint (weights, optimiser, memory, random generators, worlds) and every line of the metrics except timing must be
identical. Points are counted events, not times: the n-th step of the worlds, the n-th gradient step, before or after the n-th
file of the run is written, synced, renamed or removed, or the n-th folder created.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.config import load_settings
from holdfast.envs import World
from holdfast.files import Folder
from holdfast.rollout import Collector
from holdfast.runs import TIMING, RunFolder, read_metrics
from holdfast.trainer import learner, train

SMALL = ["trainer.checkpoint_interval=2", "trainer.keep.last=1", "progress=off"]
CARTPOLE = [
    "settings=cartpole_no_velocity",
    "env.num_envs=8",
    "trainer.batch_size=256",
    "trainer.minibatch_size=128",
    "trainer.total_timesteps=2560",
]
PENDULUM = [
    "settings=pendulum_no_velocity",
    "env.num_envs=4",
    "trainer.batch_size=128",
    "trainer.minibatch_size=64",
    "trainer.total_timesteps=1280",
]
MEMORY = [
    "settings=memory",
    "env.num_envs=2",
    "trainer.batch_size=512",
    "trainer.minibatch_size=256",
    "trainer.total_timesteps=3072",
]
SEGMENTS = ["trainer.horizon=8"]  # several segments per slot
RUNS = {
    "cartpole": CARTPOLE,
    "memory": MEMORY,
    "workers": [*PENDULUM, "trainer.num_workers=2"],
    "gru": [*CARTPOLE, "policy.core=gru", "policy.layers=2"],
    "mingru": [*MEMORY, "policy.core=mingru"],
    "memoryless": [*CARTPOLE, "policy.core=none"],
    "vtrace": [*PENDULUM, "trainer.advantage=vtrace", "trainer.prioritized.alpha=0.6"],
    "burn-in": [*CARTPOLE, *SEGMENTS, "trainer.burn_in=4"],
    "refreshed": [*CARTPOLE, *SEGMENTS, "trainer.start_states=refreshed"],
    "regularised": [*CARTPOLE, "trainer.l2_init=0.01", "trainer.weight_clip=2", "trainer.target_kl=0.01"],
    "lifetime": [*MEMORY, "policy.memory_scope=lifetime", "seed=5"],
    "components": [*MEMORY, "agent=latent_attn_tiny"],
    "collect": ["env=collect", "env.num_envs=4", "trainer.horizon=16", "trainer.total_timesteps=1280"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=104, help="number of kills, spread over the runs")
    parser.add_argument("--seed", type=int, default=0, help="seed for choosing the points")
    parser.add_argument("runs", nargs="*", choices=[[], *RUNS], help="runs to kill (default: all)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.runs or list(RUNS)
    shares = [options.points * (i + 1) // len(names) - options.points * i // len(names) for i in range(len(names))]
    survived, rng = 0, random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        for name, points in zip(names, shares, strict=True):
            survived += kill_and_resume(name, points, Path(folder), rng)
    print(f"{survived} of {options.points} kills survived: resumed runs are identical to uninterrupted ones")
    raise SystemExit(0 if survived == options.points else 1)


def kill_and_resume(name: str, points: int, folder: Path, rng: random.Random) -> int:
    words = [*RUNS[name], *SMALL, f"runs_dir={folder}"]
    load_settings(words).env.describe()  # imports the world once, before the forks
    counts_file = folder / f"{name}.json"
    code = run_forked(lambda: run_counting(words, f"{name}-untouched", counts_file))
    assert code == 0, f"the uninterrupted run of {name} failed"
    wanted, counts = digest(folder / f"{name}-untouched"), json.loads(counts_file.read_text())
    survived = 0
    for number, (event, nth) in enumerate(choose(counts, points, rng)):
        run = f"{name}-{number}"
        killed = run_forked(lambda run=run, event=event, nth=nth: run_killed(words, run, event, nth))
        began = time.perf_counter()
        resumed = run_forked(lambda run=run: train(load_settings([*words, f"run={run}"])))
        seconds = time.perf_counter() - began
        trouble = [] if (killed, resumed) == (-signal.SIGKILL, 0) else [f"exit codes {killed}, {resumed}"]
        if not trouble:
            found = digest(folder / run)
            trouble += [f"{part} differs" for part in wanted if found.get(part) != wanted[part]]
        trouble += [
            f"{p.name} was left behind" for p in (folder / run).rglob("*") if p.name[0] == "." or p.name == "lock"
        ]
        survived += not trouble
        verdict = ", ".join(trouble) or "identical"
        print(f"{name}: killed at {event} {nth} of {counts[event]}, resumed in {seconds:.1f} s: {verdict}", flush=True)
    return survived


def choose(counts: dict[str, int], points: int, rng: random.Random) -> list[tuple[str, int]]:
    """Pick each kind of event in turn, at a random occurrence."""
    kinds = sorted(counts)
    rng.shuffle(kinds)
    return [(kind, rng.randint(1, counts[kind])) for kind in (kinds[i % len(kinds)] for i in range(points))]


def run_forked(work: Callable[[], Any]) -> int:
    """Run `work` in a forked process; return its exit code, or minus the number of the signal that ended it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if "HOLDFAST_VERBOSE" not in os.environ else 1)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def on_events(happened: Callable[[str], None]) -> None:
    """From now on, call `happened(event)` at every countable event in this process."""

    def report(owner: Any, name: str, event: str, after: bool = False) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            happened(event)
            result = original(*args, **kwargs)
            if after:
                happened(f"after {event}")
            return result

        setattr(owner, name, wrapped)

    report(World, "step", "step of the worlds", after=True)
    report(learner.Learner, "_step", "gradient step", after=True)
    report(Collector, "collect", "rollout", after=True)
    report(RunFolder, "log_metrics", "line of metrics", after=True)
    for event in ("write", "append", "rename", "remove", "sync", "subfolder"):
        report(Folder, event, event, after=True)
    report(os, "fsync", "fsync", after=True)  # inside Folder.write: the file is whole, but not under its name


def run_counting(words: list[str], run: str, file: Path) -> None:
    counts: Counter[str] = Counter()
    settings = load_settings([*words, f"run={run}"])
    on_events(lambda event: counts.update([event]))
    train(settings)
    file.write_text(json.dumps(counts))


def run_killed(words: list[str], run: str, event: str, nth: int) -> None:
    left = nth

    def happened(which: str) -> None:
        nonlocal left
        left -= which == event
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    settings = load_settings([*words, f"run={run}"])
    on_events(happened)
    train(settings)


def digest(run: Path) -> dict[str, str]:
    """Hash each part of the newest checkpoint; add the metrics and the facts to compare."""
    saved = load_checkpoint(list_checkpoints(run / "checkpoints")[-1])
    parts = {
        group: hashlib.sha256(
            b"".join(k.encode() + x.numpy().tobytes() for k, x in sorted(members.items()))
        ).hexdigest()
        for group, members in saved.tensors.items()
    }
    facts = {key: saved.facts[key] for key in ("update", "episodes", "world_steps", "optimizer", "rng", "worst_parity")}
    return {**parts, "metrics": json.dumps(figures(run)), "facts": json.dumps(facts)}


def figures(run: Path) -> list[dict[str, Any]]:
    """The metrics of every update, without timing."""
    return [{key: value for key, value in row.items() if key not in TIMING} for row in read_metrics(run)]


if __name__ == "__main__":
    main()
