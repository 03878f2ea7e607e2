"""Actions leave in the form of the environment's action space, whatever its structure."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st

from holdfast.envs.spaces import ActionWriter
from holdfast.errors import NonFiniteError, SettingsError
from holdfast.spec import BoxActions, DiscreteActions, DiscreteObs, MixedActions, MultiDiscreteActions, WorldSpec
from support.spaces import ACTIONS


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(0, 256, (2,), np.int64), ["Box(", "256"]),
        (spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64), ["Box("]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Text(4)]), ["'1'", "Text("]),
        (spaces.Dict(a=spaces.Dict(b=spaces.Sequence(spaces.Discrete(2)))), ["'a.b'", "Sequence("]),
        (spaces.Tuple([]), ["nothing to choose"]),
    ],
)
def test_unsupported_action_spaces_are_named(space: spaces.Space, words: list[str]):
    with pytest.raises(SettingsError) as caught:
        ActionWriter(space, "toy world", 0)
    assert all(word in str(caught.value) for word in ["toy world", *words]), caught.value


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
    assert writer.spec == BoxActions((-0.1,) * 4, (0.1, 0.2, float(np.finfo(np.float32).max), 0.7))
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


def test_mixed_actions_put_choices_first():
    space = spaces.Dict(
        aim=spaces.Box(-1, 1, (2,), np.float64),
        buttons=spaces.MultiBinary(2),
        gear=spaces.Box(-1, 4, (1,), np.int8),
        move=spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(0, 5, ())]),
    )
    writer = ActionWriter(space, "toy", 0)
    spec = MixedActions((2, 2, 6, 3), (-1.0, -1.0, 0.0), (1.0, 1.0, 5.0))
    assert writer.spec == spec
    assert (spec.shape, spec.mask_sizes, MixedActions((2, 3), (0.0,), (1.0,), True).mask_sizes) == ((7,), (), (2, 3))
    world = WorldSpec("toy", DiscreteObs(2), spec, 1)
    assert WorldSpec.from_json(world.to_json()) == world
    (action,) = writer.rows(np.array([[0, 1, 5, 2, 0.5, -7, 9]], np.float32))
    assert list(action) == ["aim", "buttons", "gear", "move"]
    assert action["aim"].tolist() == [0.5, -1]
    assert action["buttons"].tolist() == [0, 1]
    assert action["gear"].tolist() == [4]
    assert (int(action["move"][0]), float(action["move"][1])) == (3, 5)
    dtypes = [action["aim"].dtype, action["buttons"].dtype, action["gear"].dtype, action["move"][0].dtype]
    assert dtypes == [np.float64, np.int8, np.int8, np.int64]


def test_a_nan_among_choices_is_refused():
    writer = ActionWriter(spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (1,))]), "toy world", 4)
    with pytest.raises(NonFiniteError, match="action of slot 5 is nan"):
        writer.write(np.array([[0, 0.5], [1, np.nan]], np.float32))


@pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")  # a Box of shape () gets a number
@given(space=ACTIONS, seed=st.integers(0, 99))
def test_every_written_action_is_in_its_space(space: spaces.Space, seed: int):
    rng = np.random.default_rng(seed)
    writer = ActionWriter(space, "toy", 0)
    sizes = getattr(writer.spec, "sizes", ())
    num_reals = len(getattr(writer.spec, "low", ()))
    parts = [rng.integers(sizes, size=(3, len(sizes))), rng.normal(0, 4, (3, num_reals))]
    actions = np.concatenate(parts, 1).astype(writer.spec.dtype).reshape(3, *writer.spec.shape)
    rows = list(writer.rows(actions))
    assert len(rows) == 3
    assert all(space.contains(row) for row in rows)
    assert batch_space(space, 3).contains(writer.write(actions))
