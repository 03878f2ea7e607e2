"""`make bench-peers`: Holdfast beside other libraries on CartPole without velocities, in alternation, one thread each.

goal: training seconds until 20 greedy episodes average 450. speed: steps per second with the same network and the same PPO
settings for all. Prints the tables of docs/speed.md; `--write` puts them there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments import REQUIREMENTS, ROOT, make_environment
from tables import make_tables, write_page

HERE = Path(__file__).resolve().parent
TIMEOUT = 900.0  # seconds for one measurement


@dataclass(frozen=True)
class Peer:
    title: str
    script: str
    with_torch: bool = True
    goals: Sequence[str] = ()  # tasks it has besides speed


PEERS = {
    "holdfast": Peer("Holdfast", "run_holdfast.py", goals=("goal",)),
    "sb3": Peer("sb3-contrib RecurrentPPO", "run_sb3.py", goals=("goal-zoo", "goal")),
    "skrl": Peer("skrl PPO_RNN", "run_skrl.py"),
    "torchrl": Peer("TorchRL", "run_torchrl.py"),
    "samplefactory": Peer("Sample Factory APPO", "run_samplefactory.py"),
    "jax": Peer("compiled JAX (world included)", "run_jax.py", with_torch=False),
}


def main() -> None:
    options = parse_options()
    pythons: dict[str, Path | str] = {}
    for name in options.only:
        needs = REQUIREMENTS.get(name)  # none: runs in this environment
        try:
            pythons[name] = make_environment(name, needs, PEERS[name].with_torch) if needs else sys.executable
        except subprocess.CalledProcessError as error:
            pythons[name] = f"could not be installed: {' '.join(error.cmd[-2:])} failed"
    result: dict[str, Any] = {"machine": describe_machine(), "rows": []}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    work = list(plan(options))
    for number, (name, task, envs, seed) in enumerate(work, 1):
        measured = measure(PEERS[name], pythons[name], task, envs, seed, options)
        result["rows"].append({"peer": name, "task": task, "envs": envs, "seed": seed, **measured})
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        print(
            f"{number:3}/{len(work)} {name:13} {task:8} {envs:3} environments, seed {seed}: {say(measured)}", flush=True
        )
    text = make_tables(result, {name: peer.title for name, peer in PEERS.items()})
    print(f"\n{text}\n\nFigures: {options.json}")
    if options.write:
        write_page(ROOT / "docs" / "speed.md", text)


def plan(options: argparse.Namespace) -> list[tuple[str, str, int, int]]:
    """Peer, task, environments and seed of each measurement. The order of peers rotates with the seed."""
    work = []
    for seed in range(options.seeds):
        turn = seed % len(options.only)
        names = options.only[turn:] + options.only[:turn]
        if "speed" in options.tasks:
            work += [(name, "speed", envs, seed) for envs in options.envs for name in names]
        if "goal" in options.tasks:
            work += [(name, goal, 8, seed) for name in names for goal in PEERS[name].goals]
    return work


def measure(
    peer: Peer, python: Path | str, task: str, envs: int, seed: int, options: argparse.Namespace
) -> dict[str, Any]:
    """The JSON that the peer's script prints; {"failed": reason} if there is none."""
    if isinstance(python, str) and not Path(python).exists():
        return {"failed": python}
    command = [
        str(python),
        "-W",
        "ignore",
        str(HERE / peer.script),
        f"--task={task}",
        f"--envs={envs}",
        f"--seed={seed}",
    ]
    command += [f"--seconds={options.seconds}", f"--warm-up={options.warm_up}", f"--limit={options.limit}"]
    command += [f"--steps={options.steps}"] if options.steps else []
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as folder:
        try:
            ran = subprocess.run(
                command,
                env={**os.environ, **one_thread},
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                preexec_fn=use_one_core,
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"no result after {TIMEOUT:.0f} s"}
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode or not lines:
        return {"failed": (ran.stderr.strip().splitlines() or ["printed no result"])[-1]}
    return json.loads(lines[-1])


def use_one_core() -> None:
    """Pin this process to its last core: some libraries start threads whatever they are told."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def say(measured: dict[str, Any]) -> str:
    if "failed" in measured:
        return f"FAILED: {measured['failed']}"
    if "steps_per_s" in measured:
        return f"{measured['steps_per_s']:,.0f} steps/s"
    outcome = "reached" if measured["reached"] else "not reached"
    return f"450 {outcome} after {measured['seconds']:.1f} s, {measured['steps']:,} steps"


def describe_machine() -> str:
    names = [line for line in read_lines("/proc/cpuinfo") if line.startswith("model name")]
    processor = names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores"


def read_lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PEERS), help=f"comma-separated, of: {', '.join(PEERS)}")
    parser.add_argument("--tasks", default="speed,goal", help="speed, goal or both")
    parser.add_argument("--envs", default="8,64,512", help="numbers of environments for the speed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds to measure a speed")
    parser.add_argument("--warm-up", type=float, default=1.5, help="seconds left out before that")
    parser.add_argument("--limit", type=float, default=90.0, help="training seconds after which 450 is given up")
    parser.add_argument("--steps", type=int, help="steps after which 450 is given up")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench-peers.json", help="file for the figures")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/speed.md")
    parser.add_argument("--quick", action="store_true", help="try everything once, briefly; the figures mean nothing")
    options = parser.parse_args()
    options.only, options.tasks = options.only.split(","), options.tasks.split(",")
    options.envs = [int(number) for number in options.envs.split(",")]
    for given, known in ((options.only, list(PEERS)), (options.tasks, ["speed", "goal"])):
        if unknown := [word for word in given if word not in known]:
            parser.error(f"unknown: {unknown[0]!r}; choose from {', '.join(known)}")
    if options.quick:
        options.seeds, options.envs, options.seconds, options.warm_up = 1, [8], 0.5, 0.1
        options.limit, options.steps = 3.0, 2048
    return options


if __name__ == "__main__":
    main()
