"""Episodes that are lived again: which worlds allow it, and what happens to those that take long or never come back."""

import time

import numpy as np
import pytest

from holdfast.envs import GymEnv, GymVectorEnv, ReplayPoint, make_world, why_not_replayable, workers
from holdfast.errors import HoldfastError

TIMEOUT = 1.5


def odd(fault: str) -> GymEnv:
    return GymEnv(name="gym:toy_gym:Odd-v0", kwargs={"fault": fault})


@pytest.mark.parametrize("in_a_worker", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_depends_on_its_seed_and_actions_alone(in_a_worker):
    assert why_not_replayable(GymEnv(name="gym:toy_gym:Dice-v0"), in_a_worker, TIMEOUT) is None
    carries = why_not_replayable(GymEnv(name="gym:toy_gym:Count-v0"), in_a_worker, TIMEOUT)
    assert str(carries).startswith("gym:toy_gym:Count-v0: episodes with the same seed and actions differ")


def test_a_vector_environment_draws_from_one_generator():
    assert "cannot be replayed" in str(why_not_replayable(GymVectorEnv(name="gymvec:CartPole-v1"), False, TIMEOUT))


@pytest.mark.parametrize(("fault", "why"), [("raise", "the physics exploded")])
def test_one_that_fails_is_not_known(fault, why):
    problem = str(why_not_replayable(odd(fault), False, TIMEOUT))
    assert "the replay test failed" in problem
    assert why in problem


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "why"), [("exit", "exited with code 7"), ("sleep", "has not answered for 1.5 s")])
def test_one_that_takes_its_process_with_it_harms_a_worker_only(fault, why):
    problem = str(why_not_replayable(odd(fault), True, TIMEOUT))
    assert "the replay test failed" in problem
    assert why in problem


@pytest.mark.slow
def test_workers_may_take_as_long_as_they_are_at_it(monkeypatch):
    """An episode of three seconds with half of that to answer; then one that hangs in its last step."""
    slow, hang = 2, 3  # actions: 0.3 s, and a minute

    def point_after(*actions: int) -> ReplayPoint:
        nothing, lengths = np.zeros(1, np.int64), np.array([len(actions)])
        return ReplayPoint(0, len(actions), nothing, lengths, np.array(actions).reshape(-1, 1))

    with make_world(odd("sleep at 3"), 1, range(1), worker_timeout=TIMEOUT) as world:
        monkeypatch.setattr(workers, "BUILDING_SECONDS", TIMEOUT)  # now it is built
        began = time.monotonic()
        world.replay_to(point_after(*[slow] * 10))
        assert time.monotonic() - began > 2 * TIMEOUT
        with pytest.raises(HoldfastError, match=r"has not answered for 1.5 s"):
            world.replay_to(point_after(0, 0, hang))
