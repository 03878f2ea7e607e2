"""Spaces are saved with the agent, so that it can be used without its environment."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings

from holdfast.envs.spaces import ActionWriter, obs_reader, read_spaces, save_spaces
from holdfast.errors import CheckpointError, SettingsError
from holdfast.spec import BoxActions, BoxObs, DiscreteActions, MixedActions, WorldSpec
from support.spaces import ACTIONS, OBSERVATIONS

SPEC = WorldSpec("toy", BoxObs((3,), "float32"), DiscreteActions(("0", "1")), 1)


@settings(deadline=None, max_examples=60)
@given(OBSERVATIONS, ACTIONS)
def test_spaces_are_read_as_they_were_saved(observation, action):
    saved = save_spaces(observation, action, ["a"], action_mask=None)
    assert read_spaces(replace(SPEC, spaces=saved)) == (observation, action, ["a"], None)
    assert json.loads(saved)


def test_keys_keep_their_order_and_text_its_place():
    space = spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Tuple([spaces.Text(5), spaces.Box(0, 1, (2,))]))])
    found = read_spaces(replace(SPEC, spaces=save_spaces(space, spaces.Discrete(2), [], False)))[0]
    assert isinstance(found, spaces.Dict)
    assert [*found.spaces] == ["z", "a"]
    given = {"z": 1, "a": ("north", np.array([0.25, 0.5], np.float32))}
    reader, out = obs_reader(found, "toy"), np.zeros(3, np.float32)
    reader.read(given, out)
    assert out.tolist() == [1.0, 0.25, 0.5]


def test_keys_may_be_numbers_and_tuples():
    entries: Any = [(("a", (1, None)), spaces.Discrete(2)), (np.int64(7), spaces.Discrete(2))]
    space = spaces.Dict(entries)
    found = read_spaces(replace(SPEC, spaces=save_spaces(space, spaces.Discrete(2), [], False)))[0]
    assert isinstance(found, spaces.Dict)
    assert [*found.spaces] == [("a", (1, None)), 7]
    entries = [(b"x", spaces.Discrete(2))]
    with pytest.raises(SettingsError, match="the key b'x'"):
        save_spaces(spaces.Dict(entries), spaces.Discrete(2), [], False)


@pytest.mark.parametrize(("dtype", "kept"), [(">f4", "f4"), (">i2", "i2"), ("longdouble", "f8")])
def test_dtypes_are_read_in_the_byte_order_of_the_machine(dtype, kept):
    space = spaces.Box(0, 1, (2,), np.dtype(dtype))  # pyright: ignore[reportArgumentType]
    found = read_spaces(replace(SPEC, spaces=save_spaces(space, spaces.Discrete(2), [], False)))[0]
    assert found.dtype == np.dtype(kept)
    assert found.contains(np.array([0, 1], kept))


def test_limits_are_exact_and_infinite_ones_stay_infinite():
    low, high = np.array([-np.inf, 0.1], np.float32), np.array([1 / 3, np.inf], np.float32)
    space = spaces.Box(low, high)
    found = read_spaces(replace(SPEC, spaces=save_spaces(spaces.Discrete(2), space, [], False)))[1]
    assert isinstance(found, spaces.Box)
    assert (found.low.tobytes(), found.high.tobytes()) == (low.tobytes(), high.tobytes())


def test_a_large_image_with_many_limits_is_saved_in_few_bytes():
    high = np.random.default_rng(0).integers(1, 255, (64, 64, 3)).astype(np.uint8)
    saved = save_spaces(spaces.Box(np.zeros_like(high), high), spaces.Discrete(2), [], False)
    assert len(saved) < 500
    assert read_spaces(replace(SPEC, spaces=saved))[0].shape == (64, 64, 3)


@pytest.mark.parametrize(
    ("actions", "space"),
    [
        (DiscreteActions(("a", "b", "c")), spaces.Discrete(3)),
        (BoxActions((-2.0,), (2.0,)), spaces.Box(-2, 2, (1,))),
        (MixedActions((2, 3), (0.0,), (1.0,)), spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(0, 1, (1,))))),
    ],
)
def test_an_agent_without_saved_spaces_has_those_of_its_spec(actions, space):
    found = read_spaces(replace(SPEC, actions=actions))
    assert found[:2] == (spaces.Box(-np.inf, np.inf, (3,)), space)
    assert ActionWriter(found[1], "toy", 0).spec.shape == actions.shape


GOOD = json.loads(save_spaces(spaces.Box(0, 1, (2,)), spaces.Discrete(2), [], False))
BOX = GOOD["observation"]


@pytest.mark.parametrize(
    "observation",
    [
        {**BOX, "shape": [10**9, 10**9]},
        {**BOX, "dtype": "|O"},
        {**BOX, "low": "[" * 50},
        {**BOX, "low": ["0", "0", "0"]},
        {**BOX, "shape": [-1]},
        {"kind": "Pickle"},
        {"kind": "Discrete", "n": -5, "start": 0},
        {"kind": "Tuple", "entries": 3},
        {},
        None,
    ],
)
def test_damaged_spaces_are_named(observation):
    text = json.dumps({**GOOD, "observation": observation})
    with pytest.raises(CheckpointError, match="the spaces of toy in the checkpoint are damaged"):
        read_spaces(replace(SPEC, spaces=text))
