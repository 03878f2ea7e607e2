"""Spaces become specs; observations arrive checked, copied and, if they are nested, packed into one vector."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from holdfast.envs.failures import BadValue
from holdfast.envs.spaces import obs_reader
from holdfast.errors import SettingsError
from holdfast.spec import BoxObs, DiscreteObs, MultiDiscreteActions, ObsPart, WorldSpec
from support.spaces import OBSERVATIONS


def box_spec(space: spaces.Space) -> BoxObs:
    spec = obs_reader(space, "toy").spec
    assert isinstance(spec, BoxObs)
    return spec


def read(space: spaces.Space, obs: object, hide: tuple[int | str, ...] = (), lead: tuple[int, ...] = ()) -> np.ndarray:
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
        (spaces.Dict(a=spaces.Dict(b=spaces.Discrete(3))), {"a": {}}, ["'a.b'"]),
        (spaces.Dict(a=spaces.Dict(b=spaces.Discrete(3))), {"a": 2}, ["'a'", "int", "Dict"]),
        (spaces.Dict(a=spaces.Dict(b=spaces.Discrete(3))), {"a": {"b": 3}}, ["'a.b'", "value 3", "Discrete(3)"]),
        (spaces.Dict(a=spaces.Discrete(3)), {"a": 1.0}, ["'a'", "float64"]),
        (spaces.Tuple([spaces.Discrete(3), spaces.MultiDiscrete([2, 5])]), (0,), ["1 entries", "expected 2"]),
        (spaces.Tuple([spaces.Discrete(3), spaces.Discrete(3)]), (0, 1, 2), ["3 entries", "expected 2"]),
        (spaces.Tuple([spaces.Discrete(3), spaces.Discrete(3)]), 1, ["int", "Tuple"]),
        (spaces.Tuple([spaces.MultiDiscrete([2, 5])]), (np.array([1, 5]),), ["'0'", "value 5"]),
        (spaces.MultiDiscrete([2, 5], start=[1, 0]), np.array([0, 0]), ["value 0", "MultiDiscrete"]),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8), ["value 2", "MultiBinary"]),
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
        (spaces.Text(5), ["no numbers"]),
        (spaces.Dict(a=spaces.Text(5), b=spaces.Text(5)), ["no numbers"]),
        (spaces.Dict(), ["no numbers"]),
        (spaces.Sequence(spaces.Discrete(3)), ["Sequence(", "no fixed size"]),
        (
            spaces.Tuple([spaces.Graph(spaces.Box(0, 1, (2,)), None)]),
            ["'0'", "Graph(", "no fixed size", "env.hide=[0]"],
        ),
        (spaces.Dict(a=spaces.Dict(b=spaces.OneOf([spaces.Discrete(2)]))), ["'a.b'", "OneOf("]),
        (spaces.Dict(a=spaces.Space((2,), np.float32)), ["'a'", "Space", "not supported"]),
        (spaces.Dict(a=spaces.Discrete(2**24 + 1)), ["'a'", "16,777,216"]),
        (spaces.Box(0, 1, (0,)), ["empty"]),
    ],
)
def test_unsupported_observation_spaces_are_named(space: spaces.Space, words: list[str]):
    with pytest.raises(SettingsError) as caught:
        obs_reader(space, "toy world")
    assert all(word in str(caught.value) for word in ["toy world", *words]), caught.value


def numbers(space: spaces.Space, obs: object) -> list[float]:
    """All numbers of an observation in the order of its space; codes are counted from 0."""
    match space:
        case spaces.Dict():
            assert isinstance(obs, dict)
            return [x for key, child in space.spaces.items() for x in numbers(child, obs[key])]
        case spaces.Tuple():
            assert isinstance(obs, tuple)
            return [x for child, value in zip(space.spaces, obs, strict=True) for x in numbers(child, value)]
    return np.ravel(np.asarray(obs) - getattr(space, "start", 0)).tolist()


@given(space=OBSERVATIONS, seed=st.integers(0, 99))
def test_any_nested_space_is_packed_in_its_order(space: spaces.Space, seed: int):
    space.seed(seed)
    samples = [space.sample() for _ in range(2)]
    reader = obs_reader(space, "toy")
    rows = [read(space, obs) for obs in samples]
    for obs, row in zip(samples, rows, strict=True):
        assert row.ravel().tolist() == pytest.approx(numbers(space, obs), abs=1e-6)
    batch = concatenate(space, samples, create_empty_array(space, 2))
    assert np.array_equal(read(space, batch, lead=(2,)), np.stack(rows))
    spec = WorldSpec("toy", reader.spec, MultiDiscreteActions((2,)), 1)
    assert WorldSpec.from_json(spec.to_json()) == spec
    if isinstance(reader.spec, BoxObs) and reader.spec.parts:
        assert sum(part.size for part in reader.spec.parts) == reader.spec.shape[0]
        assert all(len(part.sizes) in (0, part.size) for part in reader.spec.parts)


MINIGRID = spaces.Dict(
    direction=spaces.Discrete(4), image=spaces.Box(0, 255, (7, 7, 3), np.uint8), mission=spaces.Text(9)
)


def test_parts_have_names_categories_and_the_smallest_dtype():
    assert obs_reader(MINIGRID, "toy").spec == BoxObs(
        (148,), "uint8", (ObsPart("direction", (), 0, sizes=(4,)), ObsPart("image", (7, 7, 3), 1, 255.0))
    )
    cards = spaces.Tuple([spaces.Discrete(300), spaces.Dict(ace=spaces.MultiBinary(2))])
    assert obs_reader(cards, "toy").spec == BoxObs(
        (3,), "float32", (ObsPart("0", (), 0, sizes=(300,)), ObsPart("1.ace", (2,), 1))
    )
    assert obs_reader(spaces.MultiDiscrete([2, 5]), "toy").spec == BoxObs(
        (2,), "uint8", (ObsPart("obs", (2,), 0, sizes=(2, 5)),)
    )


def test_a_spec_of_an_older_version_has_no_categories():
    spec = WorldSpec("toy", BoxObs((1,), "float32", (ObsPart("a", (1,), 0),)), MultiDiscreteActions((2,)), 1)
    stored = spec.to_json()
    del stored["obs"]["parts"][0]["sizes"]
    assert WorldSpec.from_json(stored) == spec


def test_text_is_left_out_and_reported_once(caplog: pytest.LogCaptureFixture):
    obs = {"image": np.zeros((7, 7, 3), np.uint8), "direction": 3, "mission": "go"}
    with caplog.at_level("INFO", "holdfast"):
        for _ in range(3):
            assert obs_reader(MINIGRID, "talking world").spec.shape == (148,)
    assert [record.getMessage() for record in caplog.records].count(caplog.records[0].getMessage()) == 1
    assert "talking world" in caplog.text
    assert "mission" in caplog.text
    assert read(MINIGRID, obs)[0] == 3


ROBOT = spaces.Dict(
    arm=spaces.Dict(grip=spaces.Discrete(2), speed=spaces.Box(-9, 9, (3,))),
    camera=spaces.Box(0, 255, (4, 4), np.uint8),
    levels=spaces.MultiDiscrete([3, 4, 5]),
)
ROBOT_OBS = {
    "arm": {"speed": np.array([1, 2, 3], np.float32), "grip": 1},
    "camera": np.zeros((4, 4), np.uint8),
    "levels": np.array([2, 3, 4]),
}


@pytest.mark.parametrize(
    ("hide", "names", "values"),
    [
        (["camera"], ["arm.grip", "arm.speed", "levels"], [1, 1, 2, 3, 2, 3, 4]),
        (["camera", "arm"], ["levels"], [2, 3, 4]),
        (["camera", "arm.grip", "arm.speed.1"], ["arm.speed", "levels"], [1, 3, 2, 3, 4]),
        (["camera", "arm", "arm.speed", "levels.0", "levels.2"], ["levels"], [3]),
        (["camera", "levels.0", "levels.1", "levels.2"], ["arm.grip", "arm.speed"], [1, 1, 2, 3]),
    ],
)
def test_entries_are_hidden_by_name(hide: list[str], names: list[str], values: list[float]):
    spec = obs_reader(ROBOT, "toy", hide).spec
    assert isinstance(spec, BoxObs)
    assert [part.name for part in spec.parts] == names
    assert read(ROBOT, ROBOT_OBS, tuple(hide)).tolist() == values
    for part in spec.parts:
        if part.name == "levels":
            assert part.sizes == tuple(int(value) + 1 for value in values[part.start :])


def test_a_tuples_entries_are_hidden_by_number_and_unsupported_ones_may_be_hidden():
    space = spaces.Tuple([spaces.Discrete(5), spaces.Box(0, 9, (2,)), spaces.Sequence(spaces.Discrete(2))])
    assert read(space, (4, np.array([1, 2]), (0, 1, 1)), (0, 2)).tolist() == [1, 2]
    assert read(space, (4, np.array([1, 2]), ()), ("1.0", 2)).tolist() == [4, 2]


@pytest.mark.parametrize(
    ("hide", "words"),
    [
        (["arm.sped"], ["env.hide=[arm.sped]", "no entry arm.sped", "arm.grip, arm.speed, camera, levels"]),
        (["arm.speed.3"], ["no entry arm.speed.3"]),
        (["camera.0"], ["no entry camera.0"]),
        ([0], ["no entry 0", "camera"]),
        (["arm", "camera", "levels"], ["hides all 4"]),
    ],
)
def test_names_that_hide_nothing_or_all_are_refused(hide: list[int | str], words: list[str]):
    with pytest.raises(SettingsError) as caught:
        obs_reader(ROBOT, "toy", hide)
    assert all(word in str(caught.value) for word in words), caught.value
