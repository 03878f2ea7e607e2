"""The world contract's own part: buffers, seeds, and NaN or Inf caught where it is made."""

import numpy as np
import pytest

from holdfast.envs.world import Buffers, World, episode_seed
from holdfast.errors import NonFiniteError
from holdfast.spec import BoxObs, DiscreteActions, WorldSpec

SPEC = WorldSpec("toy", BoxObs((3,), "float32"), DiscreteActions(("left", "right")), agents_per_env=2)


class Toy(World):
    """Hands out what a test puts into `plan`: {step: {array: [(row, value)]}}."""

    def __init__(self, plan, spec=SPEC):
        super().__init__(spec, range(5, 8))
        self.plan = plan

    def _start(self, index, seed):
        self._write()

    def _step(self, envs):
        self.buffers.terminated[:] = False
        self._write()

    def _write(self):
        for array, entries in self.plan.get(self.steps, {}).items():
            for row, value in entries:
                getattr(self.buffers, array)[row] = value


def run(plan, num_steps=4):
    world = Toy(plan)
    world.reset(seed=0)
    for _ in range(num_steps):
        world.step(np.zeros(world.num_slots, np.int64))
    return world


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({3: {"rewards": [(1, np.nan)]}}, "reward of slot 11 (environment 5, agent 1) is nan at step 3."),
        (
            {2: {"obs": [(4, [0, -np.inf, np.nan])]}},
            "observation of slot 14 (environment 7, agent 0) is -inf at step 2.",
        ),
        ({0: {"obs": [(5, np.inf)]}}, "observation of slot 15 (environment 7, agent 1) is inf at step 0."),
        (
            {1: {"final_obs": [(0, np.nan), (3, np.nan)], "terminated": [(3, True)]}},
            "final observation of slot 13 (environment 6, agent 1) is nan at step 1.",
        ),
        (
            {1: {"final_obs": [(2, np.inf)], "truncated": [(2, True)]}},
            "final observation of slot 12 (environment 6, agent 0) is inf at step 1.",
        ),
    ],
)
def test_a_non_finite_number_is_named_at_its_step(plan, words):
    with pytest.raises(NonFiniteError) as error:
        run(plan)
    assert str(error.value).splitlines()[0] == f"toy: {words}"


def test_a_final_observation_counts_only_where_an_episode_ended():
    run({1: {"final_obs": [(0, np.nan)], "terminated": [(3, True)]}})


def test_rewards_are_checked_where_observations_are_bytes():
    spec = WorldSpec("toy", BoxObs((3,), "uint8"), DiscreteActions(("left", "right")), agents_per_env=2)
    world = Toy({1: {"rewards": [(0, np.inf)]}}, spec)
    world.reset(seed=0)
    with pytest.raises(NonFiniteError, match="reward of slot 10"):
        world.step(np.zeros(6, np.int64))


def test_everything_handed_out_is_the_buffers():
    world = Toy({})
    obs, _ = world.reset(seed=0)
    actions = np.arange(6) % 2
    stepped, rewards, terminated, truncated, info = world.step(actions)
    b = world.buffers
    assert obs is stepped is b.obs
    assert (rewards is b.rewards, terminated is b.terminated, truncated is b.truncated) == (True, True, True)
    assert (info["final_obs"] is b.final_obs, info["valid"] is b.valid) == (True, True)
    np.testing.assert_array_equal(b.actions, actions)
    assert b.valid.all()
    assert world.num_slots == world.num_envs == 6


def test_reset_clears_what_the_last_run_left():
    world = run(
        {
            4: {
                "rewards": [(1, 2.0)],
                "terminated": [(1, True)],
                "truncated": [(2, True)],
                "valid": [(0, False)],
            }
        }
    )
    world.plan = {}
    world.reset(seed=0)
    b = world.buffers
    assert not b.rewards.any()
    assert not (b.terminated | b.truncated).any()
    assert b.valid.all()
    assert world.steps == 0


def test_buffers_have_the_described_shapes():
    b = Buffers.allocate(SPEC, 6)
    for name, (shape, dtype) in Buffers.layout(SPEC).items():
        array = getattr(b, name)
        assert (array.shape, array.dtype) == ((6, *shape), np.dtype(dtype)), name


def test_episode_seeds_differ_and_stay():
    seeds = {episode_seed(s, e, k) for s in range(8) for e in range(8) for k in range(8)}
    assert len(seeds) == 512
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert episode_seed(1, 2, 3) == episode_seed(1, 2, 3) != episode_seed(3, 2, 1)
    assert (episode_seed(0, 0, 0), episode_seed(1, 2, 3)) == (1484405855, 1911094848), "old runs could not be replayed"
