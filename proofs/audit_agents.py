"""`make audit-agents`: audit every agent of both families with every core and many seeds. Prints false alarms and seconds."""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from holdfast.config.registry import CELLS
from holdfast.policies import GRID_AGENTS

SECONDS = {"fast": 20.0}
MOST_SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0, help="to split a long run")
    parser.add_argument("--cores", nargs="*", default=list(CELLS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    agents = [f"{key}={name}" for name in GRID_AGENTS for key in ("py_agent", "agent")]
    jobs = [
        (agent, core, seed)
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for agent in agents
        for core in options.cores
    ]
    rows: dict[tuple[str, str], list[dict]] = defaultdict(list)
    began = time.perf_counter()
    # Spawned, because torch's threads do not survive a fork.
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        for done, future in enumerate(as_completed([pool.submit(one, *job) for job in jobs]), 1):
            row = future.result()
            rows[row["agent"], row["core"]].append(row)
            for failure in row["failures"]:
                print(f"FALSE ALARM {row['agent']} {row['core']} seed {row['seed']}: {failure}", flush=True)
            if done % 40 == 0:
                print(f"{done}/{len(jobs)} after {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{'agent':28} {'core':7} {'audits':>6} {'false alarms':>12} {'seconds, median':>15} {'longest':>8}")
    met = True
    for agent in agents:
        for core in options.cores:
            found = rows[agent, core]
            seconds = sorted(row["seconds"] for row in found)
            alarms = sum(bool(row["failures"]) for row in found)
            met &= alarms == 0 and seconds[-1] <= SECONDS.get(agent.partition("=")[2], MOST_SECONDS)
            middle = seconds[len(seconds) // 2]
            print(f"{agent:28} {core:7} {len(found):6} {alarms:12} {middle:15.1f} {seconds[-1]:8.1f}")
    if options.json:
        options.json.write_text(json.dumps([row for found in rows.values() for row in found], indent=1) + "\n")
    print("met" if met else "MISSED")
    raise SystemExit(0 if met else 1)


def one(agent: str, core: str, seed: int) -> dict:
    """Run one full audit of a fresh policy in the memory world."""
    import torch

    from holdfast.audit import audit, subject_from_settings
    from holdfast.config import load_settings

    torch.set_num_threads(1)
    report = audit(subject_from_settings(load_settings([agent, f"policy.core={core}", f"seed={seed}"])), seed=seed)
    failures = [f"{finding.check.name}: {finding.evidence}" for finding in report.failures]
    return {"agent": agent, "core": core, "seed": seed, "failures": failures, "seconds": report.seconds}


if __name__ == "__main__":
    main()
