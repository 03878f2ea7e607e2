"""`make ranks`: is a run the same on any number of ranks, after a resume on another number, and after a rank is killed?

1. The runs of rank_job.py with 1, 2 and 4 ranks: final checkpoints and metrics (timing aside) must be identical.
2. A run stopped on 2 ranks, resumed on 1, stopped again and finished on 4 is the run that nobody stopped.
3. A rank killed with SIGKILL at many points under `torchrun --max-restarts`: the finished run is the same, and the other
   rank ends in time.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import rank_job
from kills import digest, figures

HERE = Path(__file__).resolve().parent
ENDING_SECONDS = 10.0  # for the other ranks, after one was killed
LONG = ["settings=quickstart", "trainer.shards=4", "trainer.checkpoint_interval=3", "progress=off"]
LONG += ["trainer.total_timesteps=40960", "trainer.keep.last=2"]


def torchrun(ranks: int, *options: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *options]


def train(folder: Path, run: str, ranks: int, *words: str, options: tuple[str, ...] = ()) -> subprocess.Popen:
    given = {word.partition("=")[0]: word for word in [*LONG, f"runs_dir={folder}", f"run={run}", *words]}
    command = [*torchrun(ranks, *options), "-m", "holdfast", "train", *given.values()]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen, code: int = 0) -> None:
    _, err = process.communicate(timeout=1800)
    if process.returncode != code:
        sys.exit(f"exit code {process.returncode} instead of {code}:\n{err[-3000:]}")


def wait_for_updates(process: subprocess.Popen, run: Path, updates: int) -> bool:
    """Wait for this many lines of metrics; false if the run has ended before."""
    while process.poll() is None:
        metrics = run / "metrics.jsonl"
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= updates:
            return True
        time.sleep(0.01)
    return False


def ranks_of(process: subprocess.Popen) -> dict[int, psutil.Process]:
    found = {}
    for child in psutil.Process(process.pid).children():
        environment = child.environ()
        if "RANK" in environment:
            found[int(environment["RANK"])] = child
    return found


def same(run: Path, other: Path) -> bool:
    return digest(run) == digest(other) and figures(run) == figures(other)


def compare_numbers_of_ranks(folder: Path) -> bool:
    for ranks in (1, 2, 4):
        job = [*torchrun(ranks), str(HERE / "rank_job.py"), str(folder / str(ranks))]
        ran = subprocess.run(job, capture_output=True, text=True)
        if ran.returncode:
            sys.exit(ran.stderr[-3000:])
    good = True
    for run in rank_job.RUNS:
        equal = [same(folder / str(ranks) / run, folder / "1" / run) for ranks in (2, 4)]
        print(
            f"{run:32} 2 ranks {'identical' if equal[0] else 'DIFFERS'}, 4 ranks {'identical' if equal[1] else 'DIFFERS'}"
        )
        good &= all(equal)
    return good


def resume_on_other_numbers(folder: Path, untouched: Path) -> bool:
    for ranks, updates in ((2, 8), (1, 20), (4, None)):
        process = train(folder, "resumed", ranks)
        if updates is None:
            finish(process)
        elif wait_for_updates(process, folder / "resumed", updates):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
    equal = same(folder / "resumed", untouched)
    print(f"stopped on 2 ranks, resumed on 1, finished on 4: {'identical' if equal else 'DIFFERS'}", flush=True)
    return equal


def kill_ranks(folder: Path, untouched: Path, points: int) -> bool:
    survived, rng, slowest = 0, random.Random(0), 0.0
    for point in range(points):
        victim, updates, pause = point % 2, rng.randrange(1, 36), rng.uniform(0.0, 0.1)
        process = train(folder, f"killed-{point}", 2, options=("--max-restarts=1",))
        if not wait_for_updates(process, folder / f"killed-{point}", updates):
            sys.exit(f"the run ended before update {updates}")
        time.sleep(pause)  # somewhere in the next update
        ranks = ranks_of(process)
        ranks[victim].kill()
        began = time.monotonic()
        psutil.wait_procs(ranks.values(), timeout=60)
        slowest = max(slowest, time.monotonic() - began)
        finish(process)
        equal = same(folder / f"killed-{point}", untouched)
        survived += equal
        print(f"rank {victim} killed after update {updates}: {'identical' if equal else 'DIFFERS'}", flush=True)
    print(f"{survived} of {points} identical; the other rank ended within {slowest:.1f} s")
    return survived == points and slowest <= ENDING_SECONDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20, help="how often a rank is killed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        finish(train(folder, "untouched", 1))
        good = compare_numbers_of_ranks(folder / "numbers")
        good &= resume_on_other_numbers(folder, folder / "untouched")
        good &= kill_ranks(folder, folder / "untouched", options.points)
    print("met" if good else "MISSED")
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
