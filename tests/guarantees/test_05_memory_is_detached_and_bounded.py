"""Guarantee 5: nothing kept between calls has an autograd graph, and neither graphs nor memory grow with steps."""

import gc

import pytest
import torch

from holdfast.spec import keys
from support.policies import (
    EVERY_POLICY_AND_CELL,
    make,
    random_actions,
    random_arrivals,
    random_state,
    score,
    step_td,
)


def graph_size(tensor: torch.Tensor) -> int:
    """Count the autograd nodes a tensor depends on."""
    seen, stack = set(), [tensor.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        stack += [parent for parent, _ in node.next_functions]
    return len(seen)


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
def test_memory_has_no_graph_even_when_acting_with_gradients(name, core):
    policy = make(name, core)
    arrivals = random_arrivals(policy.spec, 12, 3, seed=1, end_rate=0.2)
    sizes = []
    for t in range(12):
        out = policy(step_td(arrivals, t))
        sizes.append(graph_size(out[keys.VALUES]))
        for leaf in (*policy.get_memory(), *policy.memory.read(torch.arange(3))):
            assert leaf.grad_fn is None
            assert not leaf.requires_grad
    assert sizes[0] > 0
    assert len(set(sizes[1:])) == 1  # step 12 has as many nodes as step 2


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
def test_acting_leaves_no_tensors_behind(name, core):
    policy = make(name, core)
    arrivals = random_arrivals(policy.spec, 2, 3, seed=1)

    def live_tensors() -> int:
        gc.collect()
        return sum(issubclass(type(x), torch.Tensor) for x in gc.get_objects())

    for _ in range(3):
        policy(step_td(arrivals, 0))
    before = live_tensors()
    for _ in range(20):
        policy(step_td(arrivals, 1))
    assert live_tensors() <= before
    assert policy.memory.num_slots == 3


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
def test_learning_leaves_memory_and_start_states_alone(name, core):
    T, B = 4, 3
    policy = make(name, core)
    arrivals = random_arrivals(policy.spec, T, B, seed=1)
    policy(step_td(arrivals, 0))
    before = policy.get_memory()
    start = random_state(policy, B, 2)
    copies = [leaf.clone() for leaf in start]
    actions = random_actions(policy.spec, (T, B), torch.Generator().manual_seed(1))
    score(policy, arrivals, start, actions)[keys.VALUES].sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(policy.get_memory(), before, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(start, copies, strict=True))


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
def test_get_memory_and_set_memory_copy(name, core):
    policy = make(name, core)
    arrivals = random_arrivals(policy.spec, 3, 3, seed=1, end_rate=0.0)
    policy(step_td(arrivals, 0))
    taken = policy.get_memory()
    kept = tuple(leaf.clone() for leaf in taken)
    expected = policy(step_td(arrivals, 1))[keys.VALUES]
    assert all(torch.equal(a, b) for a, b in zip(taken, kept, strict=True))  # acting does not write into the copy
    policy.set_memory(taken)
    for leaf in taken:
        leaf.fill_(torch.nan)  # and the policy does not read from it
    torch.testing.assert_close(policy(step_td(arrivals, 1))[keys.VALUES], expected)


@pytest.mark.parametrize(("name", "core"), EVERY_POLICY_AND_CELL)
def test_memory_is_not_part_of_the_weights(name, core):
    policy = make(name, core)
    names = set(policy.state_dict())
    policy(step_td(random_arrivals(policy.spec, 1, 7, seed=1), 0))
    assert set(policy.state_dict()) == names
