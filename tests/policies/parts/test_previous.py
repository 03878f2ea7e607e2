"""PreviousStep: what a policy sees of the step before an observation."""

import math
from dataclasses import replace

import pytest
import torch

from holdfast.errors import SettingsError
from holdfast.policies import BoxPolicy
from holdfast.policies.parts.previous import PreviousStep
from holdfast.policies.vocabulary import Vocabulary
from holdfast.recurrence import CellCore
from holdfast.spec import DiscreteActions, keys
from support.policies import MOVES, REALS, SYMBOLS, TOKENS, VECTOR, make, random_arrivals

BOTH = ("action", "reward")


def encode(spec, actions, rewards, first=None, sees=BOTH, across_episodes=False):
    """Encode one step of each slot: actions [B, ...], rewards [B], first [B]."""
    part = PreviousStep(spec, Vocabulary.of(spec), sees, across_episodes)
    ended = torch.tensor([first or [False] * len(rewards)])
    inputs = {keys.LAST_ACTIONS: torch.tensor([actions]), keys.REWARDS: torch.tensor([rewards])}
    inputs |= {keys.DONES: ended, keys.TRUNCATEDS: torch.zeros_like(ended)}
    seen = part(inputs, ended & (not across_episodes))
    assert seen.shape == (1, len(rewards), part.size)
    return seen[0].tolist()


def test_a_choice_is_one_hot_and_no_action_is_none_of_them():
    assert encode(VECTOR, [0, 1, -1], [0.0, 0.0, 0.0], sees=["action"]) == [[1, 0], [0, 1], [0, 0]]


def test_several_choices():
    seen = encode(SYMBOLS, [[0, 2], [1, 0], [-1, -1]], [0.0] * 3, sees=["action"])
    assert seen == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0], [0] * 5]


def test_real_numbers_are_clipped_as_the_world_does_and_squashed():
    (seen,) = encode(REALS, [[0.5, -7.0]], [0.0], sees=["action"])
    assert seen == pytest.approx([math.log(1.5), -math.log(2.0)])


def test_rewards_are_squashed():
    seen = encode(VECTOR, [0] * 4, [0.0, 1.0, -1.0, 1e6], sees=["reward"])
    assert [row[0] for row in seen] == pytest.approx([0.0, math.log(2), -math.log(2), math.log(1e6 + 1)])


def test_the_first_observation_of_an_episode_comes_with_nothing():
    assert encode(VECTOR, [1, 1], [1.0, 1.0], first=[False, True])[1] == [0, 0, 0]


def test_memory_for_life_keeps_both_and_marks_the_start():
    one, two = encode(VECTOR, [1, 1], [1.0, 1.0], first=[False, True], across_episodes=True)
    assert one == pytest.approx([0, 1, math.log(2), 0])
    assert two == pytest.approx([0, 1, math.log(2), 1])


def test_actions_are_matched_by_name_in_another_world():
    part = PreviousStep(TOKENS, Vocabulary.of(TOKENS), ["action"], across_episodes=False)
    other = replace(TOKENS, actions=DiscreteActions(("attack", *reversed(MOVES.names[1:]))))
    part.adapt(other, Vocabulary.of(TOKENS).extended(other))
    actions = torch.tensor([[0, 1, 4]])  # attack, move_east, move_north
    seen = part({keys.LAST_ACTIONS: actions}, torch.zeros(1, 3, dtype=torch.bool))[0]
    named = [[MOVES.names[i] for i in row.nonzero().flatten()] for row in seen]
    assert named == [[], ["move_east"], ["move_north"]]
    assert part.size == len(MOVES.names)


@pytest.mark.parametrize("name", ["box+sees", "agent=fast+sees", "new-lstm-policy+sees"])
@pytest.mark.parametrize("key", [keys.LAST_ACTIONS, keys.REWARDS])
def test_outputs_depend_on_the_previous_step_except_at_a_start(name, key):
    policy = make(name)
    inputs = random_arrivals(policy.spec, 1, 3, seed=0, end_rate=0.0)
    inputs[keys.TRUNCATEDS][0, 1] = True
    other = inputs | {key: 1 - inputs[key]}
    one, two = (policy.predict_values(x, policy.initial_state(3))[0] for x in (inputs, other))
    assert (one != two).tolist() == [True, False, True]


def test_only_what_is_seen_is_stored():
    for sees, stored in (([], False), (["reward"], False), (["action"], True), (BOTH, True)):
        spec = BoxPolicy(REALS, sees=sees).get_agent_experience_spec()
        assert spec.get(keys.LAST_ACTIONS) == (((2,), "float32") if stored else None)


@pytest.mark.parametrize("name", ["box+sees", "new-lstm-policy+sees"])
def test_inputs_without_the_previous_action_are_refused(name):
    policy = make(name)
    inputs = random_arrivals(policy.spec, 1, 2, seed=0)
    del inputs[keys.LAST_ACTIONS]
    with pytest.raises(KeyError, match=r"last_actions.*policy\.sees"):
        policy.act(inputs, policy.initial_state(2))


def test_a_core_of_ones_own_has_room_for_it_or_is_refused():
    inputs = random_arrivals(VECTOR, 2, 3, seed=0)
    for size, fits in ((10, False), (13, True)):
        core = CellCore(torch.nn.GRUCell(size, 8), size, 8, num_leaves=1)
        policy = BoxPolicy(VECTOR, hidden_size=8, encoder=[10], core=core, sees=BOTH)
        if fits:
            assert policy.act(inputs, policy.initial_state(3)).values.shape == (2, 3)
        else:
            with pytest.raises(SettingsError, match=r"3 features.*BoxPolicy.*input_size=13, not 10"):
                policy.act(inputs, policy.initial_state(3))
