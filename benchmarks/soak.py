"""`make soak`: resident memory over thousands of updates, with episodes ending and memory at work all the time."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np

from holdfast.config import load_settings
from holdfast.runs.folder import read_metrics
from holdfast.trainer import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("words", nargs="*", help="key=value settings to add")
    options = parser.parse_args()
    words = [
        "env.num_envs=2",
        "trainer.horizon=8",
        "trainer.batch_size=128",
        "trainer.minibatch_size=64",
        *options.words,
    ]
    with tempfile.TemporaryDirectory() as folder:
        total = f"trainer.total_timesteps={options.updates * 128}"
        run = train(load_settings([*words, total, f"runs_dir={folder}", "run=soak", "progress=lines"])).run
        rss = np.array([row["rss_mb"] for row in read_metrics(run)])
    settled = rss[len(rss) // 5 :]  # allocators and caches fill during the first fifth
    slope = np.polyfit(np.arange(len(settled)), settled, 1)[0] * 1024
    print(
        f"{len(rss)} updates: resident {rss[0]:.0f} -> {rss[-1]:.0f} MiB; slope after the first fifth {slope:.3f} KiB per update"
    )
    raise SystemExit(0 if slope <= 1.0 else 1)


if __name__ == "__main__":
    main()
