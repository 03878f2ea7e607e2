"""ComponentPolicy: one memory for all recurrent components, clipping and L2 per component."""

import copy

import pytest
import torch

from holdfast.config.batches import plan_batches
from holdfast.config.settings import TrainerSettings
from holdfast.policies import ComponentPolicy, shared_name
from holdfast.policies.registry import read_graph
from holdfast.trainer.learner import Learner
from support.policies import TOKENS, random_arrivals, step_td, two_memories


def make_learner(changes: dict[str, dict], **trainer) -> Learner:
    graph = copy.deepcopy(read_graph("fast"))
    for name, body in changes.items():
        graph["components"][name] |= body
    settings = TrainerSettings(horizon=4, batch_size=16, minibatch_size=16, **trainer)
    policy = ComponentPolicy(TOKENS, graph, hidden_size=8)
    return Learner(policy, settings, plan_batches(settings, 4), torch.Generator())


def test_weight_clip_per_component():
    learner = make_learner({"fc1": {"clip_scale": 0.5}, "cnn2": {"clip_scale": 0}}, weight_clip=2.0)
    limits = {shared_name(name): limit for name, limit in learner.weight_limits.items()}
    first = {shared_name(name): float(value.abs().max()) for name, value in learner.first_values.items()}
    assert limits["fc1.weight"] == limits["fc1.bias"] == pytest.approx(2.0 * 0.5 * first["fc1.weight"])
    assert limits["encoded_obs.weight"] == pytest.approx(2.0 * first["encoded_obs.weight"])
    assert "cnn2.weight" not in limits, "0: not clipped"
    assert limits["core.weight_hh_l0"] == pytest.approx(2.0 * 1.0), "biases of 1 are its largest weights"


def test_l2_init_per_component():
    learner = make_learner({"fc1": {"l2_init_scale": 3.0}, "cnn2": {"l2_init_scale": 0.0}}, l2_init=1.0)
    scales = {shared_name(name): scale for name, scale in learner.l2_scales.items()}
    assert scales["fc1.weight"] == scales["fc1.bias"] == 3.0
    assert scales["cnn2.weight"] == 0.0
    assert scales["core.weight_ih_l0"] == 1.0


def test_two_cores_share_one_memory():
    policy = ComponentPolicy(TOKENS, two_memories(), hidden_size=16)
    assert policy.state_shapes == ((2, 16), (2, 16), (1, 5))
    arrivals = random_arrivals(TOKENS, 2, 3, seed=0, end_rate=0.0)
    policy(step_td(arrivals, 0))
    kept = policy.get_memory()
    assert [tuple(leaf.shape) for leaf in kept] == [(2, 3, 16), (2, 3, 16), (1, 3, 5)]
    assert all(leaf.any() for leaf in kept)
    policy.reset_env_memory(1)
    for leaf, before in zip(policy.get_memory(), kept, strict=True):
        assert not leaf[:, 1].any()
        assert torch.equal(leaf[:, [0, 2]], before[:, [0, 2]])
    policy.reset_memory()
    assert not any(leaf.any() for leaf in policy.get_memory())
    policy.set_memory(kept)
    assert all(torch.equal(one, two) for one, two in zip(policy.get_memory(), kept, strict=True))


def test_the_state_of_the_second_core_matters():
    policy = ComponentPolicy(TOKENS, two_memories(), hidden_size=16)
    arrivals = random_arrivals(TOKENS, 1, 1, seed=0, end_rate=0.0)
    start = policy.initial_state(1)
    marked = (*start[:2], torch.ones_like(start[2]))
    plain = policy(step_td(arrivals, 0), state=start)["values"]
    assert not torch.equal(plain, policy(step_td(arrivals, 0), state=marked)["values"])


def test_policy_core_changes_every_recurrent_component():
    policy = ComponentPolicy(TOKENS, two_memories(), core="mingru", hidden_size=7)
    assert policy.state_shapes == ((2, 7), (1, 5)), "the size setting applies to _core_ only"
    assert ComponentPolicy(TOKENS, two_memories(), core="none").state_shapes == ()
