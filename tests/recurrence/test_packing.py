"""The layout of steps and inserted cells."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.recurrence.packing import pack


def check(first: np.ndarray) -> None:
    """Each step has its own cell, episodes are contiguous, start from zero or from their slot's start state, and end
    where c can be read."""
    T, B = first.shape
    packing = pack(first)
    if packing is None:
        assert not first[1:].any()
        return
    step_at = {}
    for t in range(T):
        for b in range(B):
            step_at[int(packing.rows[t, b]), int(packing.columns[t, b])] = (t, b)
    assert len(step_at) == T * B
    assert all(0 <= row < packing.num_rows and 0 <= column < packing.num_columns for row, column in step_at)
    for (row, column), (t, b) in step_at.items():
        if t == 0:
            assert (row, column) == (0, b), "a head lies where its start state goes in"
        elif not first[t, b]:
            assert step_at[row - 1, column] == (t - 1, b), "a step follows the step before it"
        elif row == 0:
            assert column >= B, "only columns without a start state are zero at the top"
        else:
            assert (row - 1, column) not in step_at, "a blank comes before an episode"
            assert row - 1 < T or not (column < B and packing.unbroken[column]), "a cell that holds is no blank"
    np.testing.assert_array_equal(packing.unbroken, ~first[1:].any(0))
    for b in range(B):
        row, column = packing.rows[-1, b], packing.columns[-1, b]
        assert packing.unbroken[b] or row == packing.num_rows - 1, "nothing below a tail"
        below = {r for r, c in step_at if c == column and r > row}
        assert not below
    assert len(set(packing.columns[-1].tolist())) == B


@given(
    T=st.integers(1, 20),
    B=st.integers(1, 12),
    rate=st.sampled_from([0.02, 0.1, 0.3, 0.7, 1.0]),
    seed=st.integers(0, 9999),
)
@settings(max_examples=150, deadline=None)
def test_layouts_are_valid(T, B, rate, seed):
    check(np.random.default_rng(seed).random((T, B)) < rate)


@given(T=st.integers(2, 20), B=st.integers(1, 12), rate=st.floats(0.01, 1.0), seed=st.integers(0, 9999))
@settings(max_examples=100, deadline=None)
def test_never_more_cells_than_a_column_per_slot(T, B, rate, seed):
    first = np.random.default_rng(seed).random((T, B)) < rate
    packing = pack(first)
    if packing is not None:
        assert packing.num_rows * packing.num_columns <= (T + first[1:].sum(0).max()) * B


def test_no_episode_opens():
    first = np.zeros((5, 3), bool)
    first[0] = True
    assert pack(first) is None


def test_all_slots_open_together_costs_one_row():
    """Columns of T would need a second column for every slot."""
    first = np.zeros((64, 48), bool)
    first[20] = True
    packing = pack(first)
    assert (packing.num_rows, packing.num_columns) == (65, 48)


def test_some_slots_open_together():
    first = np.zeros((64, 96), bool)
    first[20, :24] = True
    packing = pack(first)
    assert (packing.num_rows, packing.num_columns) == (65, 96)
    check(first)


def test_by_hand():
    """Two slots, four steps. Slot 0 opens at step 1, slot 1 at step 3.

    Pieces: heads of 1 and 3, tails of 3 and 1. Own columns: 5 x 2 = 10 cells. Columns of 4: head 0 and tail 1
    fit together (1 + blank + 1, one blank to spare), head 1 has no room for tail 0 with its blank, so tail 0 gets a
    third column: 4 x 3 = 12 cells. Own columns it is, the blank of each right before its tail.
    """
    first = np.zeros((4, 2), bool)
    first[1, 0] = first[3, 1] = True
    packing = pack(first)
    assert (packing.num_rows, packing.num_columns) == (5, 2)
    assert packing.rows.tolist() == [[0, 0], [2, 1], [3, 2], [4, 4]]
    assert packing.columns.tolist() == [[0, 1]] * 4


def test_short_horizons_get_columns_instead_of_rows():
    """One episode among 256 slots of 16 steps: one more column of 16, not one more row of 256."""
    first = np.zeros((16, 256), bool)
    first[7, 100] = True
    packing = pack(first)
    assert (packing.num_rows, packing.num_columns) == (16, 257)
    check(first)


@pytest.mark.parametrize(
    ("T", "B", "rate", "most"), [(64, 64, 0.01, 1.04), (64, 64, 0.1, 1.13), (16, 256, 0.01, 1.03), (16, 256, 0.1, 1.13)]
)
def test_hardly_more_cells_than_steps(T, B, rate, most):
    for seed in range(3):
        first = np.random.default_rng(seed).random((T, B)) < rate
        packing = pack(first)
        assert packing.num_rows * packing.num_columns <= most * T * B
