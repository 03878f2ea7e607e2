"""`make soak`: does anything grow over thousands of updates, with episodes ending and memory at work all the time?

Resident memory comes from metrics.jsonl. File handles, threads and shared memory are looked at from outside, while the run is at it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
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
MOST_KIB = 1.0  # of resident memory per update
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
            rss, seen = watch(words, Path(folder) / "soak")
        slope = slope_kib(rss)
        lines = [
            f"resident memory {rss[0]:.0f} -> {rss[-1]:.0f} MiB, {slope:+.3f} KiB per update after the first fifth"
            f"{'' if slope <= MOST_KIB else ': GREW'}"
        ]
        for name in seen[0] if seen else ():
            counts = [look[name] for look in seen[round(len(seen) * WARM_UP) :]]
            quarter = max(1, len(counts) // 4)
            more = median(counts[-quarter:]) > median(counts[:quarter])  # the last look may be at a run that is closing
            lines.append(f"{name} {min(counts)} to {max(counts)}{': GREW' if more else ''}")
        grew = grew or any(line.endswith("GREW") for line in lines)
        print(f"{len(rss)} updates, {workers} workers:\n  " + "\n  ".join(lines), flush=True)
    raise SystemExit(grew)


def watch(words: list[str], run: Path) -> tuple[np.ndarray, list[dict[str, int]]]:
    """(resident MiB at every update, counts seen while it ran) of a run in a process of its own, with its workers."""
    process = psutil.Popen([sys.executable, "-m", "holdfast", "train", *words], stdout=subprocess.DEVNULL)
    seen: list[dict[str, int]] = []
    try:
        while process.poll() is None:
            if (run / "metrics.jsonl").exists() and (look := look_at(process)):
                seen.append(look)
            time.sleep(LOOK_SECONDS)
    finally:
        if process.is_running():
            process.terminate()
            process.wait()
    if process.returncode:
        raise SystemExit(f"the run ended with code {process.returncode}")
    return np.array([row["rss_mb"] for row in read_metrics(run)]), seen


def look_at(process: psutil.Process) -> dict[str, int]:
    """What a process and its children hold; nothing if it is just ending."""
    try:
        family = [process, *process.children(recursive=True)]
        maps = [mapped.path for member in family for mapped in member.memory_maps(grouped=False)]
        return {
            "file handles": sum(member.num_fds() for member in family),
            "threads": sum(member.num_threads() for member in family),
            "processes": len(family),
            # multiprocessing names what it shares pym-...
            "shared memory mappings": sum("/pym-" in path or path.startswith(("/dev/shm", "/memfd:")) for path in maps),
        }
    except psutil.Error:
        return {}


def slope_kib(rss_mib: np.ndarray) -> float:
    """Growth per update in KiB, without the warm-up."""
    settled = rss_mib[round(len(rss_mib) * WARM_UP) :]
    return float(np.polyfit(np.arange(len(settled)), settled, 1)[0] * 1024)


if __name__ == "__main__":
    main()
