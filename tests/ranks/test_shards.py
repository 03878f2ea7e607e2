"""Shards: which ones a rank computes, and merging in their order."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ranks import Group, Moments, Shards
from holdfast.ranks.group import add_rows


class Fake(Group):
    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size


def test_every_shard_has_one_rank_and_its_own_environments():
    for size in (1, 2, 3, 6):
        ranks = [Shards(6, Fake(rank, size)) for rank in range(size)]
        assert [shard for shards in ranks for shard in shards.own] == list(range(6))
        parts = [part for shards in ranks for part in shards.parts(12)]
        assert parts == [range(2 * i, 2 * i + 2) for i in range(6)]


def test_seeds_differ_between_shards_and_one_shard_uses_the_seed_of_the_run():
    assert Shards(1).seed(7, 0) == 7
    assert len({Shards(4).seed(seed, shard) for seed in (7, 8) for shard in range(4)}) == 8


def test_the_noise_of_a_shard_does_not_depend_on_other_shards():
    def drawn(order: list[int]) -> list[float]:
        shards, found = Shards.of(2, Group(), 3), [0.0, 0.0]
        for index in order:
            with shards.noise_of(index):
                found[index] = float(torch.rand(()))
        return found

    assert drawn([0, 1]) == drawn([1, 0])
    assert len(set(drawn([0, 1]))) == 2


def test_noise_is_kept_between_calls():
    shards = Shards.of(2, Group(), 3)
    draws = []
    for _ in range(2):
        with shards.noise_of(0):
            draws.append(float(torch.rand(())))
    assert draws[0] != draws[1]


def test_one_shard_uses_the_global_generator():
    torch.manual_seed(0)
    with Shards.of(1, Group(), 3).noise_of(0):
        inside = float(torch.rand(()))
    torch.manual_seed(0)
    assert inside == float(torch.rand(()))


numbers = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=20)


@given(st.lists(numbers, min_size=1, max_size=5))
def test_merged_moments_are_those_of_all_numbers(parts):
    everything = torch.tensor([x for part in parts for x in part], dtype=torch.float64)
    rows = [Moments.of(torch.tensor(part), torch.ones(len(part), dtype=torch.bool)) for part in parts]
    merged = Moments.merge(torch.stack(rows))
    assert merged.count == len(everything)
    assert merged.mean == pytest.approx(float(everything.mean()), abs=1e-6)
    assert merged.variance == pytest.approx(float(everything.var(unbiased=False)), rel=1e-6, abs=1e-6)


def test_moments_ignore_what_is_not_valid():
    x = torch.tensor([1.0, torch.nan, 3.0])
    assert Moments.of(x, torch.tensor([True, False, True])).tolist() == [2.0, 2.0, 2.0]
    nothing = Moments.of(x, torch.zeros(3, dtype=torch.bool))
    assert Moments.merge(torch.stack([nothing, nothing])) == Moments(0.0, 0.0, 0.0)


def test_rows_are_added_one_after_the_other():
    # 1e8 + 1 - 1e8 in float32: 0 in this order, 1 in any other association
    rows = torch.tensor([[1e8], [1.0], [-1e8]])
    assert add_rows(rows).tolist() == [0.0]
    assert add_rows(rows[[0, 2, 1]]).tolist() == [1.0]
