"""The cost of resets: each core against torch.nn's module, which ignores them, and against the plain masked loop."""

from __future__ import annotations

from statistics import mean
from typing import Any

import torch
from timing import time_in_turns
from torch import nn

from holdfast.recurrence import GRU, LSTM, MinGRU, masked_loop

Shape = tuple[int, int, int, int, int]  # T, B, I, H, L

LSTM_SHAPES: tuple[Shape, ...] = ((64, 64, 128, 128, 2), (128, 32, 64, 64, 1), (16, 256, 128, 128, 1))
GRU_SHAPES = LSTM_SHAPES[:1]
# The core and the module it is compared with; torch has no minGRU.
CELLS = {"lstm": (LSTM, nn.LSTM), "gru": (GRU, nn.GRU), "mingru": (MinGRU, nn.GRU)}
DONE_RATES = (0.001, 0.01, 0.1)
NUM_PATTERNS = 3  # the cost depends on where resets fall, so each rate is a mean over patterns from fixed seeds


def measure_core(repeats: int) -> list[dict[str, Any]]:
    """Time forward and backward: one row per cell, shape and rate of episode ends.

    ms: the core; ms_floor: torch.nn's module without resets; ratio: ms / ms_floor; masked_loop_ratio: the masked loop's
    time / ms_floor.
    """
    return [
        measure_shape(cell, shape, done_rate, repeats)
        for cell, shapes in (("lstm", LSTM_SHAPES), ("gru", GRU_SHAPES), ("mingru", GRU_SHAPES))
        for shape in shapes
        for done_rate in DONE_RATES
    ]


def measure_shape(cell: str, shape: Shape, done_rate: float, repeats: int) -> dict[str, Any]:
    core, floor = (kind(*shape[2:]) for kind in CELLS[cell])
    times = [time_pattern(core, floor, shape, done_rate, seed, repeats) for seed in range(NUM_PATTERNS)]
    ms, ms_floor, loop_ratio = (mean(column) for column in zip(*times, strict=True))
    sizes = dict(zip("TBIHL", shape, strict=True))
    figures = {"ms": ms, "ms_floor": ms_floor, "ratio": ms / ms_floor, "masked_loop_ratio": loop_ratio}
    return {"cell": cell, **sizes, "done_rate": done_rate, **figures}


def time_pattern(
    core: LSTM | GRU | MinGRU, floor: nn.Module, shape: Shape, done_rate: float, seed: int, repeats: int
) -> tuple[float, float, float]:
    """Milliseconds of core and floor on one pattern of resets, and the ratio of the masked loop to the floor.

    The loop is timed separately: the thousands of small tensors it frees would slow down the core's next turn.
    """
    T, B, I, H, _ = shape
    draw = torch.Generator().manual_seed(seed)
    # An encoder below needs the gradient of x, so it is part of the cost.
    x = torch.randn(T, B, I, generator=draw).requires_grad_()
    grad = torch.randn(T, B, H, generator=draw)
    first = torch.rand(T, B, generator=draw) < done_rate
    state = core.initial_state(B)
    torch_state = state if isinstance(core, LSTM) else state[0]

    calls = {
        "floor": lambda: floor(x, torch_state)[0].backward(grad),
        "core": lambda: core(x, state, first)[0].backward(grad),
        "loop": lambda: masked_loop(core, x, state, first)[0].backward(grad),
    }
    times = time_in_turns({name: calls[name] for name in ("floor", "core")}, repeats)
    loop_times = time_in_turns({name: calls[name] for name in ("floor", "loop")}, repeats)
    return times["core"], times["floor"], loop_times["loop"] / loop_times["floor"]
