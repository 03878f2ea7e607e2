"""`holdfast bench`: every part, its rows, and what they are compared with."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from holdfast.bench.agents import measure_agents, measure_fast
from holdfast.bench.end_to_end import measure_end_to_end
from holdfast.bench.recurrence import measure_core
from holdfast.bench.reliability import measure_reliability
from holdfast.errors import SettingsError
from holdfast.trainer.malloc import keep_freed_memory


@dataclass(frozen=True)
class Part:
    title: str
    measure: Callable[[bool], list[dict[str, Any]]]  # quick -> rows


PARTS = {
    "recurrence": Part(
        "Recurrent core, forward and backward: time against torch's own cell without resets (the floor, wrong)",
        lambda quick: measure_core(torch.get_num_threads(), 3 if quick else 15),
    ),
    "fast": Part(
        "Fast against the first version's formulation (dense box, repeated bilinear head)",
        lambda quick: measure_fast(3 if quick else 15),
    ),
    "agents": Part(
        "Every agent in both families, one epoch: time per step and agent steps per second, worlds left out",
        lambda quick: measure_agents(1 if quick else 7),
    ),
    "end-to-end": Part(
        "Whole training runs: agent steps per second, shares of time, experience per step",
        lambda quick: measure_end_to_end(3 if quick else 15),
    ),
    "reliability": Part(
        "Finite checks, action log, snapshots and checkpoints: their share of training time at the default interval",
        lambda quick: measure_reliability(10 if quick else 50),
    ),
}


def run_bench(parts: Sequence[str] = (), quick: bool = False) -> dict[str, Any]:
    """Measure these parts (all of them by default): {"machine": ..., "parts": {name: rows}}."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise SettingsError(f"bench has no part {unknown[0]!r}. Parts: {', '.join(PARTS)}.")
    keep_freed_memory()  # as training does
    machine = {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    return {"machine": machine, "parts": {name: PARTS[name].measure(quick) for name in parts or PARTS}}
