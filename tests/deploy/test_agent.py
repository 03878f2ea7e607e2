"""A trained agent in a loop of the user's own."""

import json
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config import load_settings
from holdfast.deploy import Agent, AgentInputError, Normal
from holdfast.envs.spaces import read_interface, save_spaces
from holdfast.errors import CheckpointError
from holdfast.policies import Policy, make_policy
from holdfast.spec import WorldSpec
from support.spaces import ACTIONS, OBSERVATIONS


def world_spec(observation: spaces.Space, action: spaces.Space, **options) -> WorldSpec:
    interface = read_interface(observation, action, "toy", 0, **options)
    return WorldSpec("toy", interface.reader.spec, interface.actions, 1, interface.saved)


def make_agent(observation: spaces.Space, action: spaces.Space, *words: str, **options) -> Agent:
    torch.manual_seed(0)
    chosen = load_settings(["env=gym:CartPole-v1", "policy.hidden=8", *words]).policy
    policy: Policy = make_policy(chosen, world_spec(observation, action, **options))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)  # so that actions and values differ between observations
    return Agent(policy)


VECTOR = spaces.Box(-2, 2, (3,))
NESTED = spaces.Dict(
    {"image": spaces.Box(0, 255, (12, 12, 3), np.uint8), "where": spaces.Tuple((spaces.Discrete(4, start=1), VECTOR))}
)


def sampled(space: spaces.Space, count: int) -> list:
    space.seed(3)
    return [space.sample() for _ in range(count)]


def stacked(space: spaces.Space, rows: list):
    """Return observations as a vector environment gives them."""
    return concatenate(space, rows, create_empty_array(space, len(rows)))


@settings(deadline=None, max_examples=25)
@given(OBSERVATIONS, ACTIONS, st.booleans())
def test_one_observation_and_a_batch_give_the_same_actions_in_the_form_of_the_environment(observation, action, greedy):
    agent = make_agent(observation, action, "policy.encoder=[8]", "policy.heads=[8]")
    rows = sampled(observation, 3)
    batch, states = agent.act(stacked(observation, rows), greedy=greedy)
    assert batch_space(action, 3).contains(batch)
    for row, obs in enumerate(rows):
        single, state = agent.act(obs, greedy=greedy)
        assert action.contains(single)
        for whole, part in zip(states, state, strict=True):
            np.testing.assert_allclose(whole[:, row], part[:, 0], atol=1e-5)
        value = agent.value(obs)
        np.testing.assert_allclose(agent.value(stacked(observation, rows))[row], value, atol=1e-4, rtol=1e-4)


def test_the_state_is_a_value():
    agent = make_agent(VECTOR, spaces.Discrete(3))
    obs = sampled(VECTOR, 4)
    assert all(not leaf.any() for leaf in agent.initial_state())
    _, state = agent.act(obs[0])
    before = [leaf.copy() for leaf in state]
    again = [agent.act(obs[1], state)[1] for _ in range(2)]
    agent.value(obs[1], state)
    agent.probabilities(obs[1], state)
    for leaf, kept in zip(state, before, strict=True):
        np.testing.assert_array_equal(leaf, kept)
    for one, other in zip(*again, strict=True):
        np.testing.assert_array_equal(one, other)
    fresh, reset = agent.act(obs[1])[1], agent.act(obs[1], state, first=True)[1]
    for one, other in zip(fresh, reset, strict=True):
        np.testing.assert_array_equal(one, other)
    assert any((one != other).any() for one, other in zip(fresh, again[0], strict=True)), "memory makes a difference"


@pytest.mark.parametrize(
    "stored",
    [
        lambda state: json.loads(json.dumps([leaf.tolist() for leaf in state])),
        lambda state: [torch.from_numpy(leaf) for leaf in state],
        lambda state: tuple(leaf.astype(np.float64) if leaf.dtype.kind == "f" else leaf for leaf in state),
        lambda state: [np.frombuffer(leaf.tobytes(), leaf.dtype).reshape(leaf.shape) for leaf in state],
    ],
    ids=["json", "tensors", "float64", "read-only"],
)
def test_a_state_may_be_stored_as_something_else_in_the_meantime(stored):
    agent = make_agent(VECTOR, spaces.Discrete(3), "policy.sees=[action]")
    first, second = sampled(VECTOR, 2)
    _, state = agent.act(first)
    action, after = agent.act(second, state)
    again, found = agent.act(second, stored(state))
    assert again == action
    assert all(map(np.array_equal, found, after))
    assert [leaf.dtype for leaf in found] == [leaf.dtype for leaf in after]


def test_each_row_of_a_batch_starts_its_own_episodes():
    agent = make_agent(VECTOR, spaces.Discrete(3))
    obs = np.stack(sampled(VECTOR, 3))
    _, state = agent.act(obs)
    mixed = agent.act(obs, state, first=[False, True, False])[1]
    kept, reset = agent.act(obs, state)[1], agent.act(obs, state, first=True)[1]
    for leaf, old, new in zip(mixed, kept, reset, strict=True):
        np.testing.assert_array_equal(leaf[:, 1], new[:, 1])
        np.testing.assert_array_equal(leaf[:, [0, 2]], old[:, [0, 2]])


def test_step_keeps_the_state_until_reset():
    agent = make_agent(VECTOR, spaces.Discrete(3))
    rows = sampled(VECTOR, 6)
    state, by_hand = None, []
    for i, obs in enumerate(rows):
        action, state = agent.act(obs, state, first=i in (0, 3))
        by_hand.append(action)
    stepped = []
    for i, obs in enumerate(rows):
        if i == 3:
            agent.reset()
        stepped.append(agent.step(obs))
    assert stepped == by_hand


def test_reset_of_some_rows_of_a_batch():
    agent = make_agent(VECTOR, spaces.Box(-1, 1, (2,)))
    obs = np.stack(sampled(VECTOR, 2))
    agent.step(obs)
    agent.reset([True, False])
    agent.reset([False, False])  # nothing more has ended
    fresh, _ = agent.act(obs)
    _, state = agent.act(obs)
    kept, _ = agent.act(obs, state)
    found = agent.step(obs)
    np.testing.assert_array_equal(found[0], fresh[0])
    np.testing.assert_array_equal(found[1], kept[1])


def test_a_mask_in_the_observation_or_beside_it_is_kept_to():
    observation = spaces.Dict({"x": VECTOR, "action_mask": spaces.MultiBinary(5)})
    agent = make_agent(observation, spaces.Discrete(5))
    x = sampled(VECTOR, 1)[0]
    for legal in range(5):
        mask = np.eye(5, dtype=np.int8)[legal]
        assert agent.act({"x": x, "action_mask": mask}, greedy=False)[0] == legal
        probabilities = agent.probabilities({"x": x, "action_mask": mask})
        np.testing.assert_allclose(probabilities, mask)
        batch = {"x": np.stack([x, x]), "action_mask": np.stack([mask, np.ones(5, np.int8)])}
        assert agent.act(batch)[0][0] == legal
        rows = [{"x": x, "action_mask": mask}, {"x": x, "action_mask": np.ones(5, np.int8)}]
        assert agent.act(rows)[0].tolist() == agent.act(batch)[0].tolist()
    beside = make_agent(VECTOR, spaces.Discrete(5), action_mask=True)
    assert beside.act(x, mask=[0, 0, 1, 0, 0])[0] == 2
    assert beside.act(np.stack([x, x]), mask=np.eye(5)[[3, 1]])[0].tolist() == [3, 1]


def test_probabilities_have_the_form_of_the_actions():
    x = sampled(VECTOR, 1)[0]
    one = make_agent(VECTOR, spaces.Discrete(3)).probabilities(x)
    assert one.shape == (3,)
    assert one.sum() == pytest.approx(1.0)
    several = make_agent(VECTOR, spaces.MultiDiscrete([3, 2])).probabilities(np.stack([x, x]))
    assert [p.shape for p in several] == [(2, 3), (2, 2)]
    agent = make_agent(VECTOR, spaces.Box(-5, 5, (2,)))
    real = agent.probabilities(x)
    assert isinstance(real, Normal)
    np.testing.assert_allclose(agent.act(x)[0], np.clip(real.mean, -5, 5), rtol=1e-6)
    mixed = make_agent(VECTOR, spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,))))).probabilities(x)
    assert mixed[0].shape == (2,)
    assert mixed[1].std.shape == (1,)


def test_sampled_actions_follow_the_probabilities_and_the_seed():
    agent = make_agent(VECTOR, spaces.Discrete(3))
    x = np.stack(sampled(VECTOR, 1) * 4000)
    share = np.bincount(agent.act(x, greedy=False)[0], minlength=3) / 4000
    np.testing.assert_allclose(share, agent.probabilities(x[0]), atol=0.03)
    one, other = (Agent(agent.policy, seed=7).act(x[:50], greedy=False)[0] for _ in range(2))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("sees", ["[action]", "[reward]", "[action,reward]"])
def test_the_previous_action_is_part_of_the_state_and_the_reward_is_passed(sees):
    agent = make_agent(VECTOR, spaces.Discrete(3), f"policy.sees={sees}")
    x = sampled(VECTOR, 1)[0]
    _, state = agent.act(x)
    if "action" in sees:
        others = [agent.value(x, (*state[:-1], np.array([a])), reward=0.0) for a in range(3)]
        assert len(set(others)) == 3
    if "reward" in sees:
        assert agent.value(x, state, reward=5.0) != agent.value(x, state, reward=0.0)
        with pytest.raises(AgentInputError, match="sees rewards"):
            agent.act(x, state)


def test_tokens_may_be_fewer_than_the_world_has():
    settings = load_settings(["env=memory"])
    policy = make_policy(settings.policy, settings.env.describe())
    agent = Agent(policy)
    tokens = np.array([[0x11, 1, 2], [0x12, 1, 1]], np.uint8)
    padded = np.full(policy.spec.obs.shape, 255, np.uint8)
    padded[:2] = tokens
    assert agent.value(tokens) == agent.value(padded)
    assert agent.act(np.stack([padded] * 2))[0].shape == (2,)
    assert agent.action_names[0] == "noop"


X = sampled(VECTOR, 1)[0]


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda agent: agent.act(X[:2]), r"shape \(2,\); toy has \(3,\), or \(B, 3\)"),
        (lambda agent: agent.act(np.zeros((2, 2, 3))), r"shape \(2, 2, 3\)"),
        (lambda agent: agent.act(np.zeros((0, 3))), "a batch without observations"),
        (lambda agent: agent.act(X * np.nan), r"nan, at entry \(0,\)"),
        (lambda agent: agent.act(np.stack([X, X * np.inf])), "in row 1"),
        (lambda agent: agent.act("north"), "shape"),
        (lambda agent: agent.act(None), "shape"),
        (lambda agent: agent.act(np.array(["a", "b", "c"])), "dtype"),
        (lambda agent: agent.act(np.stack([X, X]), agent.act(X)[1]), "for 2 observations it needs"),
        (lambda agent: agent.act(X, ()), "state does not fit"),
        (lambda agent: agent.act(X, 3), "state does not fit"),
        (lambda agent: agent.act(X, [[1, [2]], [3]]), "its entry 0 is not an array"),
        (lambda agent: agent.act(X, [x.astype(object) for x in agent.act(X)[1]]), "its entry 0 is not an array"),
        (lambda agent: agent.act(X, [[1.0], [2.0]]), r"it has the shapes \[\(1,\), \(1,\)\]"),
        (lambda agent: agent.act(X, tuple(x * np.nan for x in agent.act(X)[1])), "the state contains nan"),
        (lambda agent: agent.act(X, first=[True, False]), "first has shape"),
        (lambda agent: agent.act(X, first="yes"), "first has shape"),
        (lambda agent: agent.act(X, mask=[1, 1, 1]), "has no action masks"),
        (lambda agent: agent.act(X, reward=[1, 2]), "reward has shape"),
        (lambda agent: agent.act(X, reward="much"), "reward='much': needs a number"),
        (lambda agent: agent.act(X, reward=np.inf), "a reward with inf"),
    ],
)
def test_what_does_not_fit_is_named(call, part):
    agent = make_agent(VECTOR, spaces.Discrete(3))
    with pytest.raises(AgentInputError, match=part):
        call(agent)
    with pytest.raises(ValueError, match=part):  # what other libraries raise
        call(agent)
    agent.act(X)


@pytest.mark.parametrize(
    ("obs", "part"),
    [
        ({"image": np.zeros((12, 12, 3), np.uint8)}, "without the entry 'where'"),
        ({"image": np.zeros((12, 12, 3), np.uint8), "where": (9, X)}, "outside its space"),
        ({"image": np.zeros((9, 9, 3), np.uint8), "where": (1, X)}, "entry 'image' of the observation of shape"),
        ([], "empty list"),
        ((1, 2), "type tuple"),
    ],
)
def test_what_does_not_fit_in_a_nested_observation_is_named(obs, part):
    with pytest.raises(AgentInputError, match=part):
        make_agent(NESTED, spaces.Discrete(3)).act(obs)


@pytest.mark.parametrize(
    ("mask", "part"),
    [(None, "needs the action mask in mask="), ([0, 0], "no legal action"), ([1], "shape"), ([[1, 0]], "shape")],
)
def test_masks_that_do_not_fit_are_named(mask, part):
    agent = make_agent(VECTOR, spaces.Discrete(2), action_mask=True)
    with pytest.raises(AgentInputError, match=part):
        agent.act(X, mask=mask)
    with pytest.raises(AgentInputError, match="fewer than 2"):
        agent.act(np.stack([X, X]), mask=[[1, 0]])


def test_a_policy_without_memory_has_the_state_nothing():
    agent = make_agent(VECTOR, spaces.Discrete(2), "policy.core=none")
    action, state = agent.act(X)
    assert (agent.recurrent, state, agent.initial_state()) == (False, (), ())
    assert agent.act(X, state)[0] == action


def test_an_agent_of_an_older_version_takes_arrays():
    spec = replace(world_spec(NESTED, spaces.Discrete(2)), spaces="")
    agent = Agent(make_policy(load_settings(["env=gym:CartPole-v1"]).policy, spec))
    assert agent.observation_space.shape == spec.obs.shape
    assert agent.action_space == gymnasium.spaces.Discrete(2)
    agent.act(np.zeros(spec.obs.shape, np.float32))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_actions_have_the_dtype_of_the_space(dtype):
    for action in (spaces.Discrete(3, dtype=dtype), spaces.MultiDiscrete([3, 2], dtype=dtype)):
        found, _ = make_agent(VECTOR, action).act(X)
        assert found.dtype == dtype
        assert action.contains(found)


def test_buffers_are_kept_for_a_few_batch_sizes_only():
    agent = make_agent(VECTOR, spaces.Discrete(3))
    for size in range(1, 40):
        agent.act(np.zeros((size, 3), np.float32))
    assert max(len(agent._reader._readers), len(agent._fixed)) <= 8


def test_flags_of_reset_fit_the_batch():
    agent = make_agent(VECTOR, spaces.Discrete(3))
    agent.step(np.stack([X, X, X]))
    for flags in ([True, False], {"a": True}, "no"):
        with pytest.raises(AgentInputError, match="reset got flags"):
            agent.reset(flags)
    agent.reset([True, False, True])
    agent.step(np.stack([X, X, X]))


def test_probabilities_draw_no_random_numbers():
    agent = make_agent(VECTOR, spaces.Discrete(3))
    before = agent._generator.get_state(), torch.get_rng_state()
    agent.probabilities(X)
    assert all(map(torch.equal, before, (agent._generator.get_state(), torch.get_rng_state())))


@pytest.mark.parametrize("wrong", [spaces.Discrete(9), VECTOR])
def test_spaces_of_a_checkpoint_that_do_not_fit_the_agent_are_refused(wrong):
    agent = make_agent(VECTOR, spaces.Discrete(3))
    for observation, action in ((wrong, spaces.Discrete(3)), (VECTOR, wrong)):
        if (observation, action) == (VECTOR, spaces.Discrete(3)):
            continue
        agent.policy.spec = replace(agent.policy.spec, spaces=save_spaces(observation, action, [], False))
        with pytest.raises(CheckpointError, match="damaged"):
            Agent(agent.policy)
