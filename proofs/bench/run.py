"""`make bench`: speed on this machine, as ratios measured in one run."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from acting import measure_acting
from cores import measure_core
from grid_agents import measure_agents, measure_fast
from training import measure_end_to_end, measure_reliability

from holdfast.cli.tables import row_table
from holdfast.trainer.process import keep_freed_memory


@dataclass(frozen=True)
class Part:
    title: str
    measure: Callable[[bool], list[dict[str, Any]]]  # quick -> rows


PARTS = {
    "recurrence": Part(
        "Recurrent core, forward and backward: time relative to torch's own cell, which ignores resets",
        lambda quick: measure_core(3 if quick else 15),
    ),
    "fast": Part(
        "Fast against the first version's implementation (dense box, repeated bilinear head)",
        lambda quick: measure_fast(3 if quick else 15),
    ),
    "agents": Part(
        "Every agent in both families, one epoch: time per step and agent steps per second, without worlds",
        lambda quick: measure_agents(1 if quick else 7),
    ),
    "acting": Part(
        "One acting step: microseconds in training, through Agent.act, and exported to ONNX",
        lambda quick: measure_acting(5 if quick else 40),
    ),
    "end-to-end": Part(
        "Whole training runs: agent steps per second, shares of time, experience per step",
        lambda quick: measure_end_to_end(3 if quick else 15),
    ),
    "reliability": Part(
        "Finite checks, action log, snapshots and checkpoints: share of training time at the default interval",
        lambda quick: measure_reliability(10 if quick else 50),
    ),
}


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="holdfast bench", description="Measure speed, as ratios within one run.")
    parser.add_argument("parts", metavar="PART", nargs="*", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--json", metavar="PATH", type=Path, help="also write the results to this file")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: faster, but less accurate")
    options = parser.parse_args(args)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}. Choose from: {', '.join(PARTS)}.")
    path: Path | None = options.json
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        parser.error(f"--json {path}: needs a file path in an existing folder.")
    keep_freed_memory()  # as training does
    machine = {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    parts = {name: PARTS[name].measure(options.quick) for name in options.parts or PARTS}
    for name, rows in parts.items():
        print(f"{PARTS[name].title}\n{row_table(rows)}\n")
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    if path is not None:
        path.write_text(json.dumps({"machine": machine, "parts": parts}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
