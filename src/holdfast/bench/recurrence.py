"""What resets cost: a core against torch.nn's own module, which ignores them, and against the plain masked loop."""

from __future__ import annotations

from statistics import mean
from typing import Any

import torch
from torch import nn

from holdfast.bench.timing import interleaved
from holdfast.recurrence import GRU, LSTM, MinGRU, masked_loop
from holdfast.trainer.malloc import keep_freed_memory

Shape = tuple[int, int, int, int, int]  # T, B, I, H, L

LSTM_SHAPES: tuple[Shape, ...] = ((64, 64, 128, 128, 2), (128, 32, 64, 64, 1), (16, 256, 128, 128, 1))
GRU_SHAPES = LSTM_SHAPES[:1]
# core and floor; torch has no minGRU
CELLS = {"lstm": (LSTM, nn.LSTM), "gru": (GRU, nn.GRU), "mingru": (MinGRU, nn.GRU)}
DONE_RATES = (0.001, 0.01, 0.1)
NUM_PATTERNS = 3  # where resets fall matters, so each rate is a mean over patterns drawn from fixed seeds


def measure_core(threads: int, repeats: int) -> list[dict[str, Any]]:
    """Time of forward and backward: one row per cell, shape and rate of episode ends.

    ms: the core; ms_floor: torch.nn's module without resets; ratio: the one by the other; masked_loop_ratio: the
    plain loop by the floor.
    """
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    keep_freed_memory()
    try:
        return [
            measure_shape(cell, shape, done_rate, repeats)
            for cell, shapes in (("lstm", LSTM_SHAPES), ("gru", GRU_SHAPES), ("mingru", GRU_SHAPES))
            for shape in shapes
            for done_rate in DONE_RATES
        ]
    finally:
        torch.set_num_threads(threads_before)


def measure_shape(cell: str, shape: Shape, done_rate: float, repeats: int) -> dict[str, Any]:
    T, B, I, H, L = shape
    core, floor = (kind(I, H, L) for kind in CELLS[cell])
    times = [time_pattern(core, floor, shape, done_rate, seed, repeats) for seed in range(NUM_PATTERNS)]
    ms, ms_floor, loop_ratio = (mean(column) for column in zip(*times, strict=True))
    return {
        "cell": cell,
        "T": T,
        "B": B,
        "I": I,
        "H": H,
        "L": L,
        "done_rate": done_rate,
        "ms": ms,
        "ms_floor": ms_floor,
        "ratio": ms / ms_floor,
        "masked_loop_ratio": loop_ratio,
    }


def time_pattern(
    core: LSTM | GRU | MinGRU, floor: nn.Module, shape: Shape, done_rate: float, seed: int, repeats: int
) -> tuple[float, float, float]:
    """Milliseconds of core and floor on one pattern of resets, and the masked loop by the floor.

    The loop has its turns apart: the thousands of small tensors it leaves behind would slow down whoever comes next.
    """
    T, B, I, H, _ = shape
    draw = torch.Generator().manual_seed(seed)
    # the gradient of x counts: an encoder below needs it
    x = torch.randn(T, B, I, generator=draw).requires_grad_()
    grad = torch.randn(T, B, H, generator=draw)
    first = torch.rand(T, B, generator=draw) < done_rate
    state = core.initial_state(B)
    torch_state = state if isinstance(core, LSTM) else state[0]

    def run_floor() -> None:
        floor(x, torch_state)[0].backward(grad)

    def run_core() -> None:
        core(x, state, first)[0].backward(grad)

    def run_loop() -> None:
        masked_loop(core, x, state, first)[0].backward(grad)

    times = interleaved({"floor": run_floor, "core": run_core}, repeats)
    loop_times = interleaved({"floor": run_floor, "loop": run_loop}, repeats)
    return times["core"], times["floor"], loop_times["loop"] / loop_times["floor"]
