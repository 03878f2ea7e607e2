"""Spaces become specs; observations arrive checked and copied, actions leave in the world's own form."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from holdfast.envs.failures import BadValue
from holdfast.envs.spaces import ActionWriter, obs_reader
from holdfast.errors import NonFiniteError, SettingsError
from holdfast.spec import (
    BoxActions,
    BoxObs,
    DiscreteActions,
    DiscreteObs,
    MultiDiscreteActions,
    ObsPart,
)


def box_spec(space: spaces.Space) -> BoxObs:
    spec = obs_reader(space, "toy").spec
    assert isinstance(spec, BoxObs)
    return spec


def read(space: spaces.Space, obs: object, hide: tuple[int, ...] = (), lead: tuple[int, ...] = ()) -> np.ndarray:
    reader = obs_reader(space, "toy", hide, lead)
    out = np.full((*lead, *reader.spec.shape), 77, reader.spec.dtype)
    reader.read(obs, out)
    return out


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        ("uint8", "uint8"),
        ("float32", "float32"),
        ("float64", "float32"),
        ("int32", "float32"),
        ("int8", "float32"),
    ],
)
@given(shape=array_shapes(min_dims=0, max_dims=3, max_side=3), count=st.integers(1, 3))
def test_box_keeps_shape_and_values(dtype: str, stored: str, shape: tuple[int, ...], count: int):
    space = spaces.Box(0, 100, shape, np.dtype(dtype).type)
    samples = np.stack([space.sample() for _ in range(count)])
    reader = obs_reader(space, "toy")
    assert reader.spec == BoxObs(shape, stored, scale=100.0 if len(shape) == 3 else 1.0)
    assert np.array_equal(read(space, samples[0]), samples[0].astype(stored))
    assert np.array_equal(read(space, samples, lead=(count,)), samples.astype(stored))


def test_box_hides_entries():
    space = spaces.Box(-9, 9, (4,), np.float32)
    obs = np.array([0, 1, 2, 3], np.float32)
    assert obs_reader(space, "toy", [3, 1, 1]).spec == BoxObs((2,), "float32")
    assert read(space, obs, hide=(1, 3)).tolist() == [0, 2]
    assert read(space, np.stack([obs, -obs]), hide=(0,), lead=(2,)).tolist() == [[1, 2, 3], [-1, -2, -3]]


@pytest.mark.parametrize(
    ("space", "hide", "words"),
    [
        (spaces.Box(-1, 1, (4,)), [1, 4], ["env.hide=[1, 4]", "0 to 3"]),
        (spaces.Box(-1, 1, (2,)), [1, 0], ["env.hide=[1, 0]", "hides all 2"]),
        (spaces.Box(-1, 1, (2, 2)), [0], ["env.hide=[0]", "Box("]),
        (spaces.Discrete(3), [0], ["env.hide=[0]", "Discrete(3)"]),
    ],
)
def test_impossible_hide_is_refused(space: spaces.Space, hide: list[int], words: list[str]):
    with pytest.raises(SettingsError) as caught:
        obs_reader(space, "toy", hide)
    assert all(word in str(caught.value) for word in words), caught.value


def test_discrete_observations_count_from_zero():
    space = spaces.Discrete(3, start=-1)
    assert obs_reader(space, "toy").spec == DiscreteObs(3)
    assert [int(read(space, symbol)) for symbol in (-1, np.int64(0), np.int8(1))] == [0, 1, 2]
    assert read(space, np.array([1, -1]), lead=(2,)).tolist() == [2, 0]
    for wrong in (2, -2, 0.0, np.array([0]), None):
        with pytest.raises(BadValue):
            read(space, wrong)


@given(shapes=st.lists(array_shapes(min_dims=0, max_dims=3, max_side=3), min_size=1, max_size=4))
def test_dict_is_packed_as_gymnasium_flattens_it(shapes: list[tuple[int, ...]]):
    space = spaces.Dict({f"{'zax'[i % 3]}{i}": spaces.Box(-5, 5, shape) for i, shape in enumerate(shapes)})
    obs = space.sample()
    spec = obs_reader(space, "toy").spec
    packed = read(space, obs)
    assert isinstance(spec, BoxObs)
    assert np.array_equal(packed, np.asarray(flatten(space, obs)))
    assert [part.name for part in spec.parts] == list(space.spaces)
    for part in spec.parts:
        assert np.array_equal(packed[part.start : part.start + part.size].reshape(part.shape), obs[part.name])
    batch = {key: np.stack([values, -values]) for key, values in obs.items()}
    assert np.array_equal(read(space, batch, lead=(2,)), np.stack([packed, -packed]))


@pytest.mark.parametrize(("high", "scale"), [(255, 255.0), (1.0, 1.0), (np.inf, 1.0), (0.0, 1.0)])
def test_a_picture_is_scaled_by_what_its_space_allows(high: float, scale: float):
    picture = spaces.Box(-1.0, high, (12, 12, 3))
    assert box_spec(picture).scale == scale
    parts = box_spec(spaces.Dict({"camera": picture, "speed": spaces.Box(0, 9, (2,))})).parts
    assert [part.scale for part in parts] == [scale, 1.0]


def test_dict_parts_follow_the_order_of_the_space():
    by_key = spaces.Dict({"b": spaces.Box(0, 1, (2,)), "a": spaces.Box(0, 255, (), np.uint8)})
    by_hand = spaces.Dict([("b", spaces.Box(0, 1, (2,))), ("a", spaces.Box(0, 255, (), np.uint8))])
    assert box_spec(by_key).parts == (ObsPart("a", (), 0), ObsPart("b", (2,), 1))
    obs = {"a": np.uint8(9), "b": np.array([0.25, 0.5])}
    assert read(by_key, obs).tolist() == [9, 0.25, 0.5]
    assert read(by_hand, obs).tolist() == ([9, 0.25, 0.5] if list(by_hand.spaces) == ["a", "b"] else [0.25, 0.5, 9])


@pytest.mark.parametrize(
    ("space", "obs", "words"),
    [
        (spaces.Box(-1, 1, (2,)), np.zeros(1, np.float32), ["(1,)", "(2,)"]),  # would broadcast
        (spaces.Box(-1, 1, (2,)), 0.5, ["()", "(2,)"]),
        (spaces.Box(-1, 1, (2,)), None, ["()", "(2,)"]),
        (spaces.Box(-1, 1, (2,)), [0.0, [1.0, 2.0]], ["not an array"]),
        (spaces.Box(-1, 1, (2,)), np.array(["a", "b"]), ["<U1", "float32"]),
        (spaces.Box(-1, 1, (2,)), np.zeros(2, complex), ["complex", "float32"]),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([0.5, 0.5]), ["float64", "uint8"]),  # would become 0
        (spaces.Box(0, 255, (2,), np.uint8), np.array([300, -1]), ["int64", "uint8"]),  # would wrap around
        (spaces.Dict(a=spaces.Box(-1, 1, (2,))), np.zeros(2), ["Dict"]),
        (spaces.Dict(a=spaces.Box(-1, 1, (2,))), {"b": np.zeros(2)}, ["'a'"]),
        (spaces.Dict(a=spaces.Box(-1, 1, (2,))), {"a": np.zeros(1)}, ["'a'", "(1,)", "(2,)"]),
    ],
)
def test_wrong_observations_are_refused(space: spaces.Space, obs: object, words: list[str]):
    with pytest.raises(BadValue) as caught:
        read(space, obs)
    assert all(word in str(caught.value) for word in words), caught.value


def test_harmless_deviations_are_read():
    assert read(spaces.Box(-9, 9, (2,)), [1, 2]).tolist() == [1, 2]
    assert read(spaces.Box(-9, 9, (2,)), np.array([0.5, 2.0])).tolist() == [0.5, 2]
    assert read(spaces.Box(0, 9, (2,), np.uint8), np.array([True, False])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Tuple([spaces.Discrete(2)]), ["Tuple", "Box, Discrete, Dict of Box"]),
        (spaces.MultiBinary(3), ["MultiBinary"]),
        (spaces.Text(5), ["Text"]),
        (spaces.Dict(a=spaces.Box(0, 1, (1,)), b=spaces.Discrete(2)), ["'b'", "Discrete(2)"]),
        (spaces.Dict(), ["Dict()"]),
    ],
)
def test_unsupported_observation_spaces_are_named(space: spaces.Space, words: list[str]):
    with pytest.raises(SettingsError) as caught:
        obs_reader(space, "toy world")
    assert all(word in str(caught.value) for word in ["toy world", *words]), caught.value


@pytest.mark.parametrize("space", [spaces.MultiBinary(3), spaces.Box(0, 5, (2,), np.int64)])
def test_unsupported_action_spaces_are_named(space: spaces.Space):
    with pytest.raises(SettingsError, match=r"toy world has .*not supported"):
        ActionWriter(space, "toy world", 0)


def test_discrete_actions():
    writer = ActionWriter(spaces.Discrete(3, start=5), "toy", 0)
    assert writer.spec == DiscreteActions(("0", "1", "2"))
    actions = np.array([0, 2])
    written = writer.write(actions)
    assert written.tolist() == [5, 7]
    assert all(spaces.Discrete(3, start=5).contains(action) for action in written)
    assert actions.tolist() == [0, 2]


def test_multi_discrete_actions():
    space = spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 1], [0, 0]]))
    writer = ActionWriter(space, "toy", 0)
    assert writer.spec == MultiDiscreteActions((2, 3, 4, 5))
    written = writer.write(np.array([[1, 2, 3, 4], [0, 0, 0, 0]]))
    assert written.tolist() == [[[1, 3], [3, 4]], [[0, 1], [0, 0]]]
    assert all(space.contains(action) for action in written)


@given(values=st.lists(st.floats(-4, 4, width=32), min_size=4, max_size=4))
def test_box_actions_are_clipped_in_the_precision_of_the_space(values: list[float]):
    space = spaces.Box(np.full((2, 2), -0.1), np.array([[0.1, 0.2], [np.inf, 0.7]]), dtype=np.float64)
    writer = ActionWriter(space, "toy", 0)
    assert writer.spec == BoxActions((-0.1,) * 4, (0.1, 0.2, np.inf, 0.7))
    action = np.array([values], np.float32)
    written = writer.write(action)
    assert written.shape == (1, 2, 2)
    assert space.contains(written[0])
    inside = np.clip(action.astype(float), space.low.ravel(), space.high.ravel())
    assert np.array_equal(written.ravel(), inside.ravel())


def test_a_policys_nan_is_not_blamed_on_the_environment():
    writer = ActionWriter(spaces.Box(-1, 1, (2,)), "toy world", first_slot=10)
    with pytest.raises(NonFiniteError, match=r"toy world: action of slot 12 is nan(?s:.*)policy returned"):
        writer.write(np.array([[0, 0], [0, 0], [0, np.nan]], np.float32))
