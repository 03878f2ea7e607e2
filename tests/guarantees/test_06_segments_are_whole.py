"""Guarantee 6: a segment is consecutive steps of one slot, and each step is trained on once per epoch.

Every number written encodes its slot and its time step, so a test can tell where each number of a segment came from.
"""

from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.ppo import Experience, segment_minibatches
from holdfast.spec import keys

STEPS = 1000  # code of a step: slot x STEPS + time step of the run


@dataclass
class Shape:
    num_slots: int
    horizon: int
    segments_per_slot: int
    burn_in: int

    @property
    def num_rows(self) -> int:
        return self.horizon * self.segments_per_slot


shapes = st.builds(
    Shape,
    num_slots=st.integers(1, 6),
    horizon=st.integers(1, 5),
    segments_per_slot=st.integers(1, 4),
    burn_in=st.integers(0, 8),
)


def make(shape: Shape) -> Experience:
    return Experience(
        {keys.OBS: ((2,), "int64"), keys.ACTIONS: ((), "int64"), "own": ((1, 1), "float64")},
        shape.num_slots,
        shape.horizon,
        shape.segments_per_slot,
        state_shapes=((2, 3), (1, 2)),
        burn_in=shape.burn_in,
        poison=True,
    )


def arrived(codes: Tensor) -> dict[str, Tensor]:
    return {
        keys.OBS: torch.stack([codes, -codes], dim=1),
        keys.REWARDS: codes.float(),
        keys.DONES: codes % 5 == 0,
        keys.TRUNCATEDS: codes % 7 == 0,
        "own": codes.double().reshape(-1, 1, 1),
    }


def state_before(codes: Tensor) -> tuple[Tensor, ...]:
    """Leaves [2, n, 3] and [1, n, 2]; layers and units differ, so that mixing axes shows."""
    h = codes.float().reshape(1, -1, 1) + torch.tensor([0.25, 0.5]).reshape(2, 1, 1) + torch.arange(3) / 16
    return h, codes.float().reshape(1, -1, 1) - torch.arange(2) / 4


def collect(experience: Experience, start: int) -> None:
    """One rollout whose row 0 is time step `start`."""
    slots = torch.arange(experience.num_slots)
    for t in range(experience.num_rows):
        codes = slots * STEPS + start + t
        if t in experience.state_rows:
            experience.write_state(t, state_before(codes))
        experience.write_action(t, codes, codes.float() + 0.5, codes.float() + 0.25)
        experience.write_inputs(t + 1, arrived(codes + 1), valid=codes % 3 != 0)
    experience.write_bootstrap(torch.zeros(experience.num_slots))


def rollouts(shape: Shape, num_rollouts: int):
    """Yield the buffer after each rollout, with the time step of its row 0."""
    experience = make(shape)
    for n in range(num_rollouts):
        start = n * shape.num_rows
        if n == 0:
            experience.write_inputs(0, arrived(torch.arange(shape.num_slots) * STEPS))
        else:
            experience.carry_over()
        collect(experience, start)
        yield experience, start


@settings(deadline=None, max_examples=60)
@given(shapes, st.integers(1, 30), st.integers(1, 3), st.integers(0, 10_000))
def test_minibatches_are_whole_segments_and_an_epoch_is_every_step_once(shape, size, num_rollouts, seed):
    generator = torch.Generator().manual_seed(seed)
    for experience, start in rollouts(shape, num_rollouts):
        codes = experience.whole().actions.float()
        experience.advantages, experience.returns = codes - 0.25, codes - 0.75
        for _epoch in range(2):
            seen = []
            drawn = list(segment_minibatches(experience.num_segments, size, generator))
            for ids, batch in zip(drawn, experience.minibatches(drawn), strict=True):
                codes = batch.inputs[keys.OBS][..., 0]
                assert codes.shape == (shape.horizon, len(ids))
                slots, times = codes // STEPS, codes % STEPS
                assert (slots == slots[0]).all(), "a segment mixes slots"
                assert (times == times[0] + torch.arange(shape.horizon).unsqueeze(1)).all(), "steps are not consecutive"
                assert ((times[0] - start) % shape.horizon == 0).all()

                for key, column in arrived(codes.flatten()).items():
                    assert torch.equal(batch.inputs[key].flatten(0, 1), column), key
                assert torch.equal(batch.first, (codes % 5 == 0) | (codes % 7 == 0))
                assert torch.equal(batch.actions, codes)
                assert torch.equal(batch.log_prob, codes.float() + 0.5)
                assert torch.equal(batch.values, codes.float() + 0.25)
                assert torch.equal(batch.valid, codes % 3 != 0)
                assert torch.equal(batch.advantages, codes.float() - 0.25)
                assert torch.equal(batch.returns, codes.float() - 0.75)
                for leaf, expected in zip(batch.start_state, state_before(codes[0]), strict=True):
                    assert torch.equal(leaf, expected), "wrong start state"
                seen += codes.flatten().tolist()
            every_step = [s * STEPS + start + t for s in range(shape.num_slots) for t in range(shape.num_rows)]
            assert sorted(seen) == every_step


@settings(deadline=None, max_examples=60)
@given(shapes, st.integers(1, 3), st.integers(0, 10_000))
def test_burn_in_is_the_steps_before_the_segment_with_their_stored_state(shape, num_rollouts, seed):
    for experience, start in rollouts(shape, num_rollouts):
        ids = torch.randperm(experience.num_segments, generator=torch.Generator().manual_seed(seed))
        begins = experience.segments(ids).inputs[keys.OBS][0, :, 0]
        warmed = torch.zeros(len(ids), dtype=torch.long)
        for group in experience.burn_in(ids):
            codes = group.inputs[keys.OBS][..., 0]
            steps = len(codes)
            assert torch.equal(codes[-1] + 1, begins[group.positions])
            assert torch.equal(codes, codes[0] + torch.arange(steps).unsqueeze(1))
            assert torch.equal(group.first, (codes % 5 == 0) | (codes % 7 == 0))
            for leaf, expected in zip(group.start_state, state_before(codes[0]), strict=True):
                assert torch.equal(leaf, expected)
            warmed[group.positions] += steps
        assert torch.equal(warmed, (begins % STEPS - start).clamp(max=shape.burn_in))


@settings(deadline=None, max_examples=30)
@given(shapes, st.integers(1, 3))
def test_the_whole_rollout_is_every_slot_from_row_0(shape, num_rollouts):
    for experience, start in rollouts(shape, num_rollouts):
        whole = experience.whole()
        codes = torch.arange(shape.num_slots) * STEPS + start + torch.arange(shape.num_rows).unsqueeze(1)
        assert torch.equal(whole.inputs[keys.OBS][..., 0], codes)
        assert torch.equal(whole.actions, codes)
        assert torch.equal(whole.values, codes.float() + 0.25)
        for leaf, expected in zip(whole.start_state, state_before(codes[0]), strict=True):
            assert torch.equal(leaf, expected)
