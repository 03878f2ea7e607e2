"""The same world in several processes: the same numbers, and errors told as if there were one process."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_play import play, same

from holdfast.config.sections import EnvSection
from holdfast.envs import GymEnv, MemoryEnv, PettingZooEnv, make_world
from holdfast.envs.worker_process import shared_buffers
from holdfast.envs.workers import WorkerWorld, split
from holdfast.errors import HoldfastError, NonFiniteError, SettingsError
from holdfast.spec import BoxObs, DiscreteActions, WorldSpec


def odd(fault: str, num_envs: int) -> GymEnv:
    return GymEnv(name="gym:toy_gym:Odd-v0", num_envs=num_envs, kwargs={"fault": fault})


@given(first=st.integers(0, 50), length=st.integers(1, 60), data=st.data())
def test_shares_are_contiguous_complete_and_even(first: int, length: int, data: st.DataObject):
    env_ids = range(first, first + length)
    shares = split(env_ids, data.draw(st.integers(1, length)))
    assert [env for share in shares for env in share] == list(env_ids)
    sizes = {len(share) for share in shares}
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


def test_shared_arrays_do_not_overlap():
    spec = WorldSpec("toy", BoxObs((3,), "uint8"), DiscreteActions(("0", "1")), 2)
    memory = bytearray(4096)
    whole = shared_buffers(memory, spec, 50)
    for number, array in enumerate(vars(whole).values()):
        array[...] = number % 2 if array.dtype == bool else number
    for number, array in enumerate(vars(shared_buffers(memory, spec, 50, slice(20, 43))).values()):
        assert len(array) == 23
        assert (array == (number % 2 if array.dtype == bool else number)).all()


@pytest.mark.parametrize(
    ("settings", "workers"),
    [
        (GymEnv(name="gym:toy_gym:Dice-v0", num_envs=5), [1, 2, 3]),
        (PettingZooEnv(name="pettingzoo:toy_zoo", num_envs=4), [3]),
        (MemoryEnv(num_envs=3, rooms=2), [2]),
        pytest.param(MemoryEnv(num_envs=5, rooms=3), [1, 2, 3], marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_results_do_not_depend_on_the_number_of_workers(settings: EnvSection, workers: list[int]):
    with make_world(settings) as world:
        alone = play(world, 60)
        after_a_reset = play(world, 60)
    assert (alone["terminated"] | alone["truncated"]).any(0).all()
    for num_workers in workers:
        with make_world(settings, num_workers) as world:
            assert isinstance(world, WorkerWorld)
            assert same(play(world, 60), alone), num_workers
            assert same(play(world, 60), after_a_reset), num_workers


def test_a_share_of_the_environments_can_be_spread_too():
    settings = GymEnv(name="gym:toy_gym:Dice-v0", num_envs=9)
    with make_world(settings) as whole, make_world(settings, 2, range(4, 7)) as part:
        everything, some = play(whole, 30), play(part, 30)
        part.close()
        part.close()
    for name, values in some.items():
        assert np.array_equal(everything[name][:, 4:7], values), name


@pytest.mark.parametrize(
    ("fault", "actions", "kind", "words"),
    [
        (
            "nan",
            [0, 2, 3, 0],
            NonFiniteError,
            [
                "observation of slot 1 (environment 1, agent 0) is nan at step 2",
                "In worker 0 with environments 0 to 1.",
            ],
        ),
        (
            "raise",
            [0, 3, 2, 0],
            HoldfastError,
            [
                "environment 1 (slot 1) raised ValueError: the physics exploded in step()",
                "In worker 0 with environments 0 to 1:\n",
                'raise ValueError("the physics exploded")\nValueError: the physics exploded',
            ],
        ),
    ],
)
def test_a_workers_error_is_told_here(fault: str, actions: list[int], kind: type[HoldfastError], words: list[str]):
    """Slots 1 and 2 fail in one step, in two workers (2: later than 3): the first in slot order is told."""
    with make_world(odd(fault, num_envs=4), 2, worker_failures=0) as world:
        world.reset(seed=0)
        world.step(np.array([0, 0, 0, 0]))
        with pytest.raises(kind) as caught:
            world.step(np.array(actions))
        assert type(caught.value) is kind
        assert all(word in str(caught.value) for word in words), caught.value
        with pytest.raises(HoldfastError, match="this world is closed"):
            world.step(np.array([0, 0, 0, 0]))


def test_what_cannot_be_made_is_told_before_a_worker_starts():
    with pytest.raises(SettingsError, match="the licence server is down"):
        make_world(odd("make", num_envs=2), 2)
