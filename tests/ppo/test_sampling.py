import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.ppo import prioritized_segments, segment_minibatches, segment_priorities


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 1000))
def test_every_segment_once_per_epoch(num_segments, size, seed):
    minibatches = list(segment_minibatches(num_segments, size, generator(seed)))
    assert sorted(torch.cat(minibatches).tolist()) == list(range(num_segments))
    assert all(len(ids) == size for ids in minibatches[:-1])
    assert 1 <= len(minibatches[-1]) <= size


def test_epochs_are_shuffled_by_the_generator_only():
    one, two = generator(7), generator(7)
    epochs = [torch.cat(list(segment_minibatches(100, 10, one))) for _ in range(2)]
    assert not torch.equal(epochs[0], epochs[1])
    assert epochs[0].tolist() != list(range(100))
    torch.manual_seed(1)
    torch.rand(3)
    for epoch in epochs:
        assert torch.equal(torch.cat(list(segment_minibatches(100, 10, two))), epoch)


@settings(deadline=None)
@given(
    st.lists(st.just(0.0) | st.floats(0.001, 100), min_size=1, max_size=40),
    st.integers(1, 50),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.6, 1.0]),
    st.integers(0, 1000),
)
def test_importance_weights_are_at_most_one_and_correct_the_sampling(numbers, size, alpha, beta, seed):
    priorities = torch.tensor(numbers)
    ids, weights = prioritized_segments(priorities, alpha, beta, generator(seed))
    assert len(ids) == len(weights) == len(numbers)
    assert (weights > 0).all()
    if beta == 0:
        assert (weights == 1).all()
    if priorities.max() > 0:
        assert alpha == 0 or (priorities[ids] > 0).all()
        # weight x share ** beta is the same for every segment
        shares = (priorities.double()[ids] / priorities.max()).pow(alpha)
        product = weights * shares.pow(beta)
        torch.testing.assert_close(product, product[:1].expand_as(product), rtol=1e-3, atol=0.0)


def test_segments_are_sampled_in_proportion_to_their_priority():
    priorities = torch.tensor([1.0, 3.0]).repeat(5000)
    ids = prioritized_segments(priorities, 1.0, 0.0, generator())[0]
    assert (ids % 2).double().mean().item() == pytest.approx(0.75, abs=0.02)
    ids = prioritized_segments(priorities, 0.0, 0.0, generator())[0]
    assert (ids % 2).double().mean().item() == pytest.approx(0.5, abs=0.02)


def test_full_correction_restores_the_plain_mean():
    priorities = torch.tensor([1.0, 2.0, 4.0]).repeat(3000)
    x = torch.tensor([3.0, 6.0, 9.0]).repeat(3000)
    ids, weights = prioritized_segments(priorities, 1.0, 1.0, generator())
    assert ((weights * x[ids]).sum() / weights.sum()).item() == pytest.approx(6.0, rel=0.03)


def test_zero_priorities_sample_uniformly():
    ids, weights = prioritized_segments(torch.zeros(1000), 1.0, 1.0, generator())
    assert (weights == 1).all()
    assert len(ids.unique()) > 500


def test_priorities_follow_segment_ids():
    # 2 segments of 2 steps, 3 slots: segment (k, s) has the id 3k + s
    advantages = torch.tensor([[1.0, -1, 0], [3, 1, 0], [0, 0, -8], [0, 2, 8]])
    assert segment_priorities(advantages, horizon=2).tolist() == [2.0, 1.0, 0.0, 0.0, 1.0, 8.0]


@pytest.mark.parametrize("bad", [[1.0, -1.0], [1.0, torch.nan], [torch.inf, 1.0]])
def test_impossible_priorities_are_refused(bad):
    with pytest.raises(ValueError, match="finite and not negative"):
        prioritized_segments(torch.tensor(bad), 1.0, 1.0, generator())


def test_impossible_sizes_are_refused_at_the_call():
    with pytest.raises(ValueError, match="segments_per_minibatch=0"):
        segment_minibatches(4, 0, generator())
    with pytest.raises(ValueError, match="num_segments=0"):
        prioritized_segments(torch.zeros(0), 1.0, 1.0, generator())
