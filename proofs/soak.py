"""`make soak`: train thousands of updates with frequent episode ends, and check that nothing leaks.

The trainer's resident memory comes from metrics.jsonl. The memory of its workers, file handles, threads and shared memory are
sampled from outside while it runs.
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
MAX_KIB = 1.0  # growth of resident memory per update, trainer and workers together
MIN_SAMPLES = 4  # fewer show no trend
SAMPLE_SECONDS = 1.0  # between samples: reading a process's memory maps slows it down
WARM_UP = 1 / 5  # share of the run left out, while allocators and caches fill


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument(
        "--workers", type=int, nargs="*", default=[0, 2], help="train once with each of these numbers of workers"
    )
    parser.add_argument("words", nargs="*", help="key=value settings to add")
    options = parser.parse_intermixed_args()
    grew = False
    for workers in options.workers:
        with tempfile.TemporaryDirectory() as folder:
            words = [*WORDS, *options.words, f"trainer.num_workers={workers}"]
            words += [f"trainer.total_timesteps={options.updates * BATCH}", f"runs_dir={folder}", "run=soak"]
            rss, samples = watch(words, Path(folder) / "soak", options.updates)
        settled = [sample for sample in samples if sample.update >= len(rss) * WARM_UP]
        if len(settled) < MIN_SAMPLES:
            raise SystemExit(
                f"only {len(settled)} samples were taken; at least {MIN_SAMPLES} are needed. Raise --updates."
            )
        lines = judge(rss, settled)
        grew = grew or any(line.endswith("GREW") for line in lines)
        print(f"{len(rss)} updates, {workers} workers:\n  " + "\n  ".join(lines), flush=True)
    raise SystemExit(grew)


@dataclass(frozen=True)
class Sample:
    """Resources of a run at one moment, seen from outside."""

    update: int
    workers_mib: float
    counts: dict[str, int]


def judge(rss: np.ndarray, samples: list[Sample]) -> list[str]:
    """One line per resource that must not grow after the warm-up; it ends with GREW if it did."""
    first = round(len(rss) * WARM_UP)
    trainer = slope_kib(range(first, len(rss)), rss[first:])
    workers = slope_kib([sample.update for sample in samples], [sample.workers_mib for sample in samples])
    together = max(trainer, 0.0) + max(workers, 0.0)  # shrinking on one side does not offset the other
    lines = [
        f"resident memory: trainer {rss[first]:.0f} -> {rss[-1]:.0f} MiB, {trainer:+.3f} KiB per update after the first fifth; "
        f"workers {samples[0].workers_mib:.0f} -> {samples[-1].workers_mib:.0f} MiB, {workers:+.3f} KiB"
        f"{'' if together <= MAX_KIB else ': GREW'}"
    ]
    quarter = len(samples) // 4
    for name in samples[0].counts:
        counts = [sample.counts[name] for sample in samples]
        more = median(counts[-quarter:]) > median(counts[:quarter])
        lines.append(f"{name} {min(counts)} to {max(counts)}{': GREW' if more else ''}")
    return lines


def watch(words: list[str], run: Path, updates: int) -> tuple[np.ndarray, list[Sample]]:
    """Train in a subprocess; return the trainer's resident MiB at every update, and samples of it with its workers."""
    process = psutil.Popen([sys.executable, "-m", "holdfast", "train", *words], stdout=subprocess.DEVNULL)
    samples: list[Sample] = []
    try:
        while process.poll() is None:
            # Workers are still starting before the first update, and stopping after the last.
            if (
                (begun := count_updates(run))
                and (sample := take_sample(process, begun))
                and count_updates(run) < updates
            ):
                samples.append(sample)
            time.sleep(SAMPLE_SECONDS)
    finally:
        if process.is_running():
            process.terminate()
            process.wait()
    if process.returncode:
        raise SystemExit(f"training failed with exit code {process.returncode}")
    return np.array([row["rss_mb"] for row in read_metrics(run)]), samples


def count_updates(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def take_sample(process: psutil.Process, update: int) -> Sample | None:
    """Resources of a process and its children; None if it is just ending."""
    try:
        family = [process, *process.children(recursive=True)]
        maps = [mapped.path for member in family for mapped in member.memory_maps(grouped=False)]
        counts = {
            "file handles": sum(member.num_fds() for member in family),
            "threads": sum(member.num_threads() for member in family),
            "processes": len(family),
            # multiprocessing names its shared memory pym-...
            "shared memory mappings": sum("/pym-" in path or path.startswith(("/dev/shm", "/memfd:")) for path in maps),
        }
        return Sample(update, sum(child.memory_info().rss for child in family[1:]) / 2**20, counts)
    except psutil.Error:
        return None


def slope_kib(updates: Sequence[int], rss_mib: Sequence[float] | np.ndarray) -> float:
    """Growth per update in KiB."""
    return float(np.polyfit(updates, rss_mib, 1)[0] * 1024)


if __name__ == "__main__":
    main()
