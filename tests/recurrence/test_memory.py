"""Memory: reading, writing and resetting slots."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.recurrence import Memory

SHAPES = ((2, 3), (1, 4))


def make_state(num_slots: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(layers, num_slots, hidden, generator=draw) for layers, hidden in SHAPES)


def assert_state(state, expected) -> None:
    assert len(state) == len(expected)
    for leaf, other in zip(state, expected, strict=True):
        assert torch.equal(leaf, other)


def pick(state, slots):
    return tuple(leaf[:, slots] for leaf in state)


def test_unknown_slots_read_as_zeros_and_the_table_grows():
    memory = Memory(SHAPES)
    assert memory.num_slots == 0
    state = memory.read(torch.tensor([4, 1]))
    assert [leaf.shape for leaf in state] == [(2, 2, 3), (1, 2, 4)]
    assert all((leaf == 0).all() for leaf in state)
    assert memory.num_slots == 5


def test_growing_keeps_stored_states():
    memory, state = Memory(SHAPES), make_state(3)
    memory.write(torch.arange(3), state)
    memory.write(torch.tensor([9]), make_state(1, seed=1))
    assert memory.num_slots == 10
    assert_state(memory.read(torch.arange(3)), state)
    assert all((leaf == 0).all() for leaf in memory.read(torch.arange(3, 9)))


@given(
    written=st.permutations(range(8)),
    num_written=st.integers(1, 8),
    read=st.permutations(range(8)),
    num_read=st.integers(1, 8),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_any_subset_in_any_order(written, num_written, read, num_read, seed):
    memory = Memory(SHAPES)
    everything = make_state(8, seed)
    memory.write(torch.arange(8), everything)
    slots = torch.tensor(written[:num_written])
    new = make_state(num_written, seed + 1)
    memory.write(slots, new)
    for leaf, part in zip(everything, new, strict=True):
        leaf[:, slots] = part
    slots = torch.tensor(read[:num_read])
    assert_state(memory.read(slots), pick(everything, slots))


def test_reading_and_writing_copy():
    memory, state = Memory(SHAPES), make_state(3)
    memory.write(torch.arange(3), state)
    kept = memory.read(torch.arange(3))
    for leaf in state:
        leaf.zero_()
    assert (memory.read(torch.arange(3))[0] != 0).all()
    for leaf in memory.read(torch.arange(3)):
        leaf.zero_()
    assert_state(memory.read(torch.arange(3)), kept)
    before = tuple(leaf.clone() for leaf in kept)
    memory.write(torch.arange(3), make_state(3, seed=5))
    assert_state(kept, before)


@pytest.mark.parametrize("slots", [[0, 1, 2], [2, 0, 1]])
def test_stored_states_have_no_graph(slots):
    memory = Memory(SHAPES)
    memory.write(torch.arange(3), make_state(3))
    state = tuple((leaf.requires_grad_() * 2) for leaf in make_state(3))
    memory.write(torch.tensor(slots), state)
    kept = (*memory.read(torch.tensor(slots)), *memory.snapshot())
    assert all(not leaf.requires_grad and leaf.grad_fn is None for leaf in kept)
    memory.restore(tuple(leaf.requires_grad_() for leaf in make_state(3)))
    assert not any(leaf.requires_grad for leaf in memory.snapshot())


def test_reset_of_one_of_some_and_of_all():
    memory, state = Memory(SHAPES), make_state(5)
    memory.write(torch.arange(5), state)
    memory.reset(4)
    memory.reset(torch.tensor([2, 0]))
    assert all((leaf[:, [0, 2, 4]] == 0).all() for leaf in memory.snapshot())
    assert_state(memory.read(torch.tensor([1, 3])), pick(state, [1, 3]))
    memory.reset()
    assert all((leaf == 0).all() for leaf in memory.snapshot())
    assert memory.num_slots == 5


def test_snapshot_and_restore_are_copies_of_any_size():
    memory, state = Memory(SHAPES), make_state(5)
    memory.write(torch.arange(5), state)
    saved = memory.snapshot()
    memory.reset()
    assert_state(saved, state)
    for size in (2, 9):
        other = Memory(SHAPES)
        other.write(torch.arange(size), make_state(size, seed=3))
        other.restore(saved)
        assert other.num_slots == 5
        assert_state(other.snapshot(), state)
        other.write(torch.arange(5), make_state(5, seed=4))
        assert_state(saved, state)


def test_a_core_without_memory():
    memory = Memory(())
    memory.write(torch.arange(3), ())
    assert memory.read(torch.arange(3)) == ()
    memory.restore(memory.snapshot())
    memory.reset()


def test_slots_given_twice_or_below_zero_are_refused():
    memory = Memory(SHAPES)
    memory.write(torch.arange(3), make_state(3))
    kept = memory.snapshot()
    with pytest.raises(ValueError, match="slot 1 is given twice"):
        memory.write(torch.tensor([1, 0, 1]), make_state(3, seed=1))
    with pytest.raises(ValueError, match="slot -1 is negative"):
        memory.write(torch.tensor([0, -1]), make_state(2, seed=1))
    with pytest.raises(ValueError, match="slot -1 is negative"):
        memory.reset(-1)
    assert_state(memory.snapshot(), kept)


@pytest.mark.parametrize("dones", [torch.tensor([True, False, True]), torch.tensor([1, 0, 1], dtype=torch.uint8)])
def test_a_mask_is_not_taken_for_slots(dones):
    memory = Memory(SHAPES)
    memory.write(torch.arange(3), make_state(3))
    with pytest.raises(ValueError, match="For a mask"):
        memory.reset(dones)
    with pytest.raises(ValueError, match="given twice"):
        memory.reset(dones.long())


def test_wrong_shapes_are_refused():
    memory = Memory(SHAPES)
    with pytest.raises(ValueError, match=r"for 2 slots it must be \[\[2, 2, 3\], \[1, 2, 4\]\]"):
        memory.write(torch.arange(2), make_state(3))
    with pytest.raises(ValueError, match="it must be"):
        memory.restore(make_state(2)[:1])
    with pytest.raises(ValueError, match="slot numbers"):
        memory.read(torch.zeros(2, 1).long())
