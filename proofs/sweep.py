"""`make sweep-proof`: kill a sweep of 3 x 3 runs twice, and search for a learning rate.

The killed sweep must end with the table that an undisturbed one has, and every run with the same bits: weights, optimiser, memory
and metrics except timing. It is killed when a share of all lines of metrics is written: once only the sweep, whose run then
saves and ends; once together with its run, as by a power cut.

The search of a wide range, with 12 trials, must find a learning rate that is better than a bad start.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from kills import digest

CARTPOLE = ["env=gym:CartPole-v1"]
GRID = [
    *CARTPOLE,
    "trainer.total_timesteps=16_384",
    "trainer.checkpoint_interval=3",
    "trainer.lr=3e-3,1e-3,1e-4",
    "policy.core=lstm,gru,mingru",
]
UPDATES = 9 * 16  # of the whole sweep
KILLS = ((0.28, False), (0.65, True))  # share of the lines of metrics; whether its run is killed, too
BAD_LR = "1e-5"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], "kills", "search"], help="default: both")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time in the part `kills`")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--steps", type=int, default=50_000, help="steps of each trial")
    options = parser.parse_args()
    parts = options.parts or ["kills", "search"]
    with tempfile.TemporaryDirectory() as folder:
        good = [kills(Path(folder), options.jobs)] if "kills" in parts else []
        good += [search(Path(folder), options.trials, options.steps)] if "search" in parts else []
    raise SystemExit(0 if all(good) else 1)


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "holdfast", "sweep", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(folder: Path, *words: str) -> str:
    process = start(folder, *words)
    out, _ = process.communicate()
    assert process.returncode == 0, out
    return out


def table(folder: Path, name: str) -> str:
    return finish(folder, "--show", name).partition("Best:")[0].strip()


def kills(folder: Path, jobs: int) -> bool:
    began = time.monotonic()
    finish(folder, *GRID, "--name", "undisturbed", "--jobs", str(jobs))
    print(f"undisturbed: {time.monotonic() - began:.0f} s", flush=True)
    sweep = folder / "runs" / "killed"
    for share, with_runs in KILLS:
        process = start(folder, *GRID, "--name", "killed", "--jobs", str(jobs))
        while lines_in(sweep) < share * UPDATES:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        runs = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for run in runs if with_runs else []:
            run.kill()
        killed = time.monotonic()
        _, left = psutil.wait_procs(runs, timeout=20)
        seconds, lines = time.monotonic() - killed, lines_in(sweep)
        process.communicate()
        done = len(list(sweep.glob("*/summary.json")))
        what = "the sweep and its runs" if with_runs else "the sweep"
        ended = f"its runs ended {seconds:.1f} s later" if not left else f"{len(left)} RUNS ARE LEFT"
        print(f"killed {what} after {lines} of {UPDATES} updates, {done} of 9 runs finished; {ended}", flush=True)
    finish(folder, *GRID, "--name", "killed", "--jobs", str(jobs))
    wanted, found = table(folder, "undisturbed"), table(folder, "killed")
    print(f"\n{found}\n")
    names = sorted(path.parent.name for path in (folder / "runs" / "undisturbed").glob("*/summary.json"))
    other = [name for name in names if digest(folder / "runs" / "undisturbed" / name) != digest(sweep / name)]
    equal = "equal" if found == wanted else f"NOT EQUAL to\n{wanted}"
    print(f"the tables are {equal}; {len(names) - len(other)} of {len(names)} runs have the same bits", flush=True)
    return found == wanted and not other and len(names) == 9


def lines_in(sweep: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in sweep.glob("*/metrics.jsonl"))


def search(folder: Path, trials: int, steps: int) -> bool:
    words = [*CARTPOLE, f"trainer.total_timesteps={steps}"]
    finish(folder, *words, "trainer.lr=1e-6..1", "--trials", str(trials), "--name", "search")
    finish(folder, *words, f"trainer.lr={BAD_LR}", "seed=0,1", "--name", "bad")
    found, bad = (json.loads(finish(folder, "--show", name, "--json")) for name in ("search", "bad"))
    for row in sorted(found["combinations"], key=lambda row: row["runs"][0]["run"]):
        mean = "-" if row["mean"] is None else f"{row['mean']:.1f}"
        print(f"{row['runs'][0]['run']:28} mean return {mean}")
    best, start_value = found["combinations"][0], bad["combinations"][0]["mean"]
    print(f"best of {trials} trials: trainer.lr={best['values']['trainer.lr']}, mean return {best['mean']:.1f}")
    print(f"bad start: trainer.lr={BAD_LR}, mean return {start_value:.1f} (two seeds)", flush=True)
    return best["mean"] > 2 * start_value


if __name__ == "__main__":
    main()
