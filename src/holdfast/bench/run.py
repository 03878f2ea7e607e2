"""`holdfast bench`: its parts and what each measures."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from holdfast.bench.agents import measure_agents, measure_fast
from holdfast.bench.recurrence import measure_core
from holdfast.bench.training import measure_end_to_end, measure_reliability
from holdfast.errors import SettingsError
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
    "end-to-end": Part(
        "Whole training runs: agent steps per second, shares of time, experience per step",
        lambda quick: measure_end_to_end(3 if quick else 15),
    ),
    "reliability": Part(
        "Finite checks, action log, snapshots and checkpoints: share of training time at the default interval",
        lambda quick: measure_reliability(10 if quick else 50),
    ),
}


def run_bench(parts: Sequence[str] = (), quick: bool = False) -> dict[str, Any]:
    """Measure these parts (default: all) and return {"machine": ..., "parts": {name: rows}}."""
    if unknown := [part for part in parts if part not in PARTS]:
        raise SettingsError(f"unknown part {unknown[0]!r}. Choose from: {', '.join(PARTS)}.")
    keep_freed_memory()  # as training does
    machine = {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    return {"machine": machine, "parts": {name: PARTS[name].measure(quick) for name in parts or PARTS}}
