"""Batch sizes worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import BatchPlan, plan_batches
from holdfast.config.settings import TrainerSettings
from holdfast.errors import SettingsError


def test_left_out_sizes():
    """64 slots x 16 steps = 1024; a quarter is 256 = 16 segments; 5000 steps need 5 batches."""
    plan = plan_batches(TrainerSettings(total_timesteps=5000, horizon=16), num_slots=64)
    assert plan == BatchPlan(
        horizon=16,
        segments_per_slot=1,
        batch_size=1024,
        minibatch_size=256,
        segments_per_minibatch=16,
        shards=1,
        minibatches=4,
        updates=5,
    )


def test_given_sizes():
    """Three segments of each of 8 slots: 24 segments of 10 steps, 6 at a time."""
    trainer = TrainerSettings(total_timesteps=480, horizon=10, batch_size=240, minibatch_size=60)
    assert plan_batches(trainer, num_slots=8) == BatchPlan(10, 3, 240, 60, 6, 1, 4, 2)


@pytest.mark.parametrize(
    ("num_slots", "per_minibatch"),
    [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
        (5, 1),
        (6, 2),
        (7, 1),
        (8, 2),
        (9, 3),
        (10, 2),
        (13, 1),
        (18, 6),
        (22, 2),
        (30, 6),
    ],
)
def test_a_quarter_or_the_nearest_divisor(num_slots, per_minibatch):
    plan = plan_batches(TrainerSettings(horizon=5), num_slots)
    assert plan.segments_per_minibatch == per_minibatch
    assert plan.minibatch_size == per_minibatch * 5


@pytest.mark.parametrize(
    ("num_slots", "sizes", "parts"),
    [
        (64, {"batch_size": 1000}, ["trainer.batch_size=1000", "64 slots x horizon 16", "Nearest: 1024."]),
        (
            64,
            {"batch_size": 1600},
            ["trainer.batch_size=1600", "64 slots x horizon 16", "Nearest: 1024 or 2048"],
        ),
        (64, {"batch_size": 16}, ["trainer.batch_size=16", "Nearest: 1024."]),
        (64, {"minibatch_size": 100}, ["trainer.minibatch_size=100", "Nearest: 96 or 112"]),
        (64, {"minibatch_size": 8}, ["trainer.minibatch_size=8", "Nearest: 16."]),
        (64, {"minibatch_size": 384}, ["trainer.minibatch_size=384", "1024", "256 or 512"]),
        (64, {"minibatch_size": 4096}, ["trainer.minibatch_size=4096", "Nearest sizes that do: 1024."]),
        (
            64,
            {"batch_size": 2048, "minibatch_size": 768},
            ["does not divide trainer.batch_size=2048", "512 or 1024"],
        ),
        (64, {"burn_in": 4}, ["trainer.burn_in=4", "one segment per slot", "trainer.batch_size=2048"]),
        (
            64,
            {"start_states": "refreshed", "update_epochs": 2},
            ["start_states=refreshed", "trainer.batch_size=2048"],
        ),
    ],
)
def test_sizes_that_do_not_fit_name_those_that_do(num_slots, sizes, parts):
    with pytest.raises(SettingsError) as caught:
        plan_batches(TrainerSettings(horizon=16, **sizes), num_slots)
    message = str(caught.value)
    assert len(message.split("\n")) <= 3
    for part in parts:
        assert part in message


def test_what_needs_two_segments_works_with_two():
    plan_batches(TrainerSettings(horizon=16, burn_in=4, batch_size=2048), 64)
    plan_batches(TrainerSettings(horizon=16, start_states="refreshed", update_epochs=2, batch_size=2048), 64)


@given(st.integers(1, 300), st.integers(1, 64), st.integers(1, 5), st.integers(1, 10**7))
def test_plans_are_whole(num_slots, horizon, segments_per_slot, total):
    trainer = TrainerSettings(
        total_timesteps=total, horizon=horizon, batch_size=num_slots * horizon * segments_per_slot
    )
    plan = plan_batches(trainer, num_slots)
    assert plan.minibatches * plan.minibatch_size == plan.batch_size == num_slots * horizon * segments_per_slot
    assert plan.segments_per_minibatch * horizon == plan.minibatch_size
    assert plan.segments_per_slot == segments_per_slot
    assert (plan.updates - 1) * plan.batch_size < total <= plan.updates * plan.batch_size
