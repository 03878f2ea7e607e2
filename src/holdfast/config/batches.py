"""Compute batch sizes and the number of updates. Segments are never cut, so sizes must be multiples of the horizon."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config.settings import TrainerSettings
from holdfast.errors import SettingsError


@dataclass(frozen=True)
class BatchPlan:
    """Batch sizes, in agent steps. One update learns from `segments_per_slot` segments of every slot."""

    horizon: int
    segments_per_slot: int
    batch_size: int
    minibatch_size: int
    segments_per_minibatch: int
    shards: int  # equal blocks of slots; a minibatch has the same number of segments from each
    minibatches: int  # per epoch
    updates: int  # in the whole run


def plan_batches(trainer: TrainerSettings, num_slots: int) -> BatchPlan:
    """Return the batch sizes for `num_slots` slots; raise SettingsError with the nearest valid sizes if they do not fit."""
    horizon, shards = trainer.horizon, trainer.shards or 1
    rollout = num_slots * horizon
    batch_size = trainer.batch_size or rollout
    if batch_size % rollout:
        raise SettingsError(
            f"trainer.batch_size={batch_size}: must be a multiple of {rollout} ({num_slots} slots x horizon "
            f"{horizon}). Nearest: {_multiples(batch_size, rollout)}."
        )
    if problem := size_problem(trainer):
        raise SettingsError(problem[1])
    if batch_size == rollout and (trainer.burn_in or trainer.start_states == "refreshed"):
        key = f"trainer.burn_in={trainer.burn_in}" if trainer.burn_in else "trainer.start_states=refreshed"
        raise SettingsError(
            f"{key}: has no effect with one segment per slot, because the batch has no earlier segment.\n"
            f"Set trainer.batch_size={2 * rollout} or more, or remove the key."
        )
    segments = batch_size // horizon
    if trainer.minibatch_size is None:
        # about a quarter of the batch; of two equally near divisors the larger, for fewer and less noisy gradient steps
        fitting = [d for d in _divisors(segments) if d % shards == 0]
        per_minibatch = min(fitting, key=lambda d: (abs(d - segments / 4), -d))
    else:
        per_minibatch = trainer.minibatch_size // horizon
    if segments % per_minibatch:
        raise SettingsError(
            f"trainer.minibatch_size={trainer.minibatch_size}: does not divide the batch of {batch_size} "
            f"steps ({num_slots} slots). Nearest sizes that do: {_fitting(segments, per_minibatch, horizon)}."
        )
    if per_minibatch % shards:
        raise SettingsError(
            f"trainer.minibatch_size={trainer.minibatch_size}: its {per_minibatch} segments cannot be divided among "
            f"{shards} shards (trainer.shards). Use a multiple of {shards * horizon}."
        )
    return BatchPlan(
        horizon=horizon,
        segments_per_slot=batch_size // rollout,
        batch_size=batch_size,
        minibatch_size=per_minibatch * horizon,
        segments_per_minibatch=per_minibatch,
        shards=shards,
        minibatches=segments // per_minibatch,
        updates=-(-trainer.total_timesteps // batch_size),
    )


def size_problem(trainer: TrainerSettings) -> tuple[str, str] | None:
    """Return (key, message) if the batch sizes are invalid for every number of slots, else None."""
    horizon, batch, minibatch = trainer.horizon, trainer.batch_size, trainer.minibatch_size
    if batch is not None and batch % horizon:
        return "trainer.batch_size", (
            f"trainer.batch_size={batch}: must be a multiple of number of slots x trainer.horizon ({horizon})."
        )
    if minibatch is not None and minibatch % horizon:
        return "trainer.minibatch_size", (
            f"trainer.minibatch_size={minibatch}: must be a multiple of trainer.horizon, which is {horizon}. "
            f"Nearest: {_multiples(minibatch, horizon)}."
        )
    if batch is not None and minibatch is not None and batch % minibatch:
        return "trainer.minibatch_size", (
            f"trainer.minibatch_size={minibatch}: does not divide trainer.batch_size={batch}. "
            f"Nearest sizes that do: {_fitting(batch // horizon, minibatch // horizon, horizon)}."
        )
    return None


def _multiples(size: int, unit: int) -> str:
    below = size // unit * unit
    return " or ".join(str(n) for n in (below, below + unit) if n)


def _fitting(segments: int, per_minibatch: int, horizon: int) -> str:
    """Return the minibatch sizes nearest to `per_minibatch` segments that divide a batch of `segments` segments."""
    divisors = _divisors(segments)
    nearest = [d for d in divisors if d <= per_minibatch][-1:] + [d for d in divisors if d > per_minibatch][:1]
    return " or ".join(str(d * horizon) for d in nearest)


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
