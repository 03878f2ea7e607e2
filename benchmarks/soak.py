"""`make soak`: does anything grow over thousands of updates, with episodes ending and memory at work all the time?

Resident memory of the trainer comes from metrics.jsonl. That of its workers, file handles, threads and shared memory are looked at
from outside, while the run is at it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil

from holdfast.runs import read_metrics

BATCH = 128
WORDS = [
    "settings=quickstart",
    "env.num_envs=2",
    "trainer.horizon=8",
    f"trainer.batch_size={BATCH}",
    "trainer.minibatch_size=64",
    "progress=off",
]
MOST_KIB = 1.0  # of resident memory per update, of the trainer and its workers together
FEWEST_LOOKS = 4  # fewer show no trend
LOOK_SECONDS = 1.0  # reading the mappings of a process slows it down
WARM_UP = 1 / 5  # of the run: allocators and caches fill


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument(
        "--workers", type=int, nargs="*", default=[0, 2], help="a run with each of these numbers of them"
    )
    parser.add_argument("words", nargs="*", help="key=value settings to add")
    options = parser.parse_intermixed_args()
    grew = False
    for workers in options.workers:
        with tempfile.TemporaryDirectory() as folder:
            words = [*WORDS, *options.words, f"trainer.num_workers={workers}"]
            words += [f"trainer.total_timesteps={options.updates * BATCH}", f"runs_dir={folder}", "run=soak"]
            rss, seen = watch(words, Path(folder) / "soak", options.updates)
        settled = [look for look in seen if look.update >= len(rss) * WARM_UP]
        if len(settled) < FEWEST_LOOKS:
            raise SystemExit(
                f"{len(settled)} looks at the run succeeded, {FEWEST_LOOKS} are needed. Use more --updates."
            )
        lines = judge(rss, settled)
        grew = grew or any(line.endswith("GREW") for line in lines)
        print(f"{len(rss)} updates, {workers} workers:\n  " + "\n  ".join(lines), flush=True)
    raise SystemExit(grew)


@dataclass(frozen=True)
class Look:
    """What a run held at some moment, from outside."""

    update: int
    workers_mib: float
    counts: dict[str, int]


def judge(rss: np.ndarray, seen: list[Look]) -> list[str]:
    """A line for everything that must not grow, after the warm-up. Those of what did end with GREW."""
    first = round(len(rss) * WARM_UP)
    trainer = slope_kib(range(first, len(rss)), rss[first:])
    workers = slope_kib([look.update for look in seen], [look.workers_mib for look in seen])
    together = max(trainer, 0.0) + max(workers, 0.0)  # one that shrinks is no excuse for the other
    lines = [
        f"resident memory: trainer {rss[first]:.0f} -> {rss[-1]:.0f} MiB, {trainer:+.3f} KiB per update after the first fifth; "
        f"workers {seen[0].workers_mib:.0f} -> {seen[-1].workers_mib:.0f} MiB, {workers:+.3f} KiB"
        f"{'' if together <= MOST_KIB else ': GREW'}"
    ]
    quarter = len(seen) // 4
    for name in seen[0].counts:
        counts = [look.counts[name] for look in seen]
        more = median(counts[-quarter:]) > median(counts[:quarter])
        lines.append(f"{name} {min(counts)} to {max(counts)}{': GREW' if more else ''}")
    return lines


def watch(words: list[str], run: Path, updates: int) -> tuple[np.ndarray, list[Look]]:
    """(resident MiB of the trainer at every update, looks at it and its workers) of a run in a process of its own."""
    process = psutil.Popen([sys.executable, "-m", "holdfast", "train", *words], stdout=subprocess.DEVNULL)
    seen: list[Look] = []
    try:
        while process.poll() is None:
            # Before the first update workers are still coming, after the last they are leaving.
            if (begun := count_updates(run)) and (look := look_at(process, begun)) and count_updates(run) < updates:
                seen.append(look)
            time.sleep(LOOK_SECONDS)
    finally:
        if process.is_running():
            process.terminate()
            process.wait()
    if process.returncode:
        raise SystemExit(f"the run ended with code {process.returncode}")
    return np.array([row["rss_mb"] for row in read_metrics(run)]), seen


def count_updates(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def look_at(process: psutil.Process, update: int) -> Look | None:
    """What a process and its children hold; None if it is just ending."""
    try:
        family = [process, *process.children(recursive=True)]
        maps = [mapped.path for member in family for mapped in member.memory_maps(grouped=False)]
        counts = {
            "file handles": sum(member.num_fds() for member in family),
            "threads": sum(member.num_threads() for member in family),
            "processes": len(family),
            # multiprocessing names what it shares pym-...
            "shared memory mappings": sum("/pym-" in path or path.startswith(("/dev/shm", "/memfd:")) for path in maps),
        }
        return Look(update, sum(child.memory_info().rss for child in family[1:]) / 2**20, counts)
    except psutil.Error:
        return None


def slope_kib(updates: Sequence[int], rss_mib: Sequence[float] | np.ndarray) -> float:
    """Growth per update in KiB."""
    return float(np.polyfit(updates, rss_mib, 1)[0] * 1024)


if __name__ == "__main__":
    main()
