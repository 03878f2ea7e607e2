"""`make learn-agents`: train every agent of both families on the quick start, and report steps and seconds to a return of 0.9."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from holdfast.config import load_settings
from holdfast.policies import GRID_AGENTS
from holdfast.runs.folder import read_metrics
from holdfast.trainer import train

GOAL, MINUTES = 0.9, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="*", help="agents such as py_agent=fast (default: all ten)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    words = options.agents or [f"{key}={name}" for name in GRID_AGENTS for key in ("py_agent", "agent")]
    print(f"{'agent':28} {'steps to 0.9':>12} {'seconds':>8} {'steps/s':>8} {'last 100':>9} {'parity':>8}", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for word in words:
            row = learn(word, options.seed, folder)
            rows.append(row)
            reached = f"{row['steps']:12,} {row['seconds']:8.0f}" if row["steps"] else f"{'not reached':>12} {'':>8}"
            print(
                f"{word:28} {reached} {row['sps']:8,.0f} {row['last_100']:9.3f} {row['parity']:8.1e}"
                f"  {'met' if row['met'] else 'MISSED'}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    raise SystemExit(0 if all(row["met"] for row in rows) else 1)


def learn(word: str, seed: int, folder: str) -> dict[str, Any]:
    """Train the quick start with this agent to the end."""
    settings = [word, "settings=quickstart", f"seed={seed}"]
    run = f"run={word.replace('=', '-')}-{seed}"
    result = train(load_settings([*settings, run, f"runs_dir={folder}", "progress=off"]))
    rows = read_metrics(result.run)
    there = next((row for row in rows if row["episodes"] >= 100 and row["episode_return"] >= GOAL), None)
    return {
        "agent": word,
        "seed": seed,
        "steps": there["agent_steps"] if there else None,
        "seconds": there["wall_s"] if there else None,
        "sps": result.summary["sps"],
        "last_100": result.summary["episode_return_mean"],
        "parity": max(row["parity_max_abs_logratio"] for row in rows),
        "met": there is not None and there["wall_s"] <= 60 * MINUTES and result.summary["episode_return_mean"] >= GOAL,
    }


if __name__ == "__main__":
    main()
