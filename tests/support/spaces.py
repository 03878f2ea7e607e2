"""Random nested spaces for Hypothesis."""

import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
NAMES = st.text("abc", min_size=1, max_size=2)


def nested(leaf: st.SearchStrategy[spaces.Space]) -> st.SearchStrategy[spaces.Space]:
    """These leaves, in Tuples and Dicts of any depth."""
    return st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
            | st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(spaces.Dict)
        ),
        max_leaves=5,
    )


def _multi_discrete(nvec: list[int], start: int) -> spaces.MultiDiscrete:
    return spaces.MultiDiscrete(np.array(nvec), start=np.arange(len(nvec)) + start)


CODES = (
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 300), st.integers(-3, 3))
    | st.builds(_multi_discrete, st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(-3, 3))
    | st.integers(1, 4).map(spaces.MultiBinary)
)
REALS = st.builds(
    lambda shape, dtype: spaces.Box(-2, 3, shape, dtype), SHAPES, st.sampled_from([np.float32, np.float64])
)
INTEGERS = st.builds(
    lambda shape, dtype: spaces.Box(1, 9, shape, dtype), SHAPES, st.sampled_from([np.uint8, np.int8, np.int64])
)
OBSERVATIONS = nested(CODES | REALS | INTEGERS)
ACTIONS = nested(CODES | REALS | INTEGERS)
