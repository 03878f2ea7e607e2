"""Worlds with nested observations, hybrid actions and masks inside observations, whatever steps them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy_nested import Robot

from holdfast.audit.sample_observations import random_actions
from holdfast.config import load_settings
from holdfast.envs import GymEnv, PettingZooEnv, World, make_world
from holdfast.envs.replayable import why_not_replayable
from holdfast.envs.vector_world import VectorWorld
from holdfast.errors import HoldfastError, SettingsError
from holdfast.evaluate import evaluate_run
from holdfast.runs import read_metrics
from holdfast.spec import BoxObs, DiscreteActions, MixedActions, ObsPart
from holdfast.trainer import train
from support.runs import figures

ROBOT = MixedActions((2, 2, 3), (-1.0, -1.0), (1.0, 1.0), masked=True)
BOARD = ObsPart("board", (5, 5, 2), 0, 255.0)
HAND = (ObsPart("hand.0", (), 50, sizes=(4,)), ObsPart("hand.1.heat", (2,), 51))


def robot(num_envs: int = 2, **settings: object) -> GymEnv:
    return GymEnv.model_validate({"name": "gym:toy_nested:Robot-v0", "num_envs": num_envs, **settings})


def turns(**settings: object) -> PettingZooEnv:
    return PettingZooEnv.model_validate({"name": "pettingzoo:toy_nested", "num_envs": 2, **settings})


def play(world: World, num_steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random legal actions; return observations, masks and rewards [num_steps + 1, slots, ...]."""
    generator = torch.Generator().manual_seed(seed)
    obs, info = world.reset(seed=seed)
    seen = [(obs.copy(), world.buffers.action_mask.copy(), world.buffers.rewards.copy())]
    for _ in range(num_steps):
        obs, rewards, _, _, info = world.step(random_actions(world.world_spec, len(obs), info, generator))
        seen.append((obs.copy(), world.buffers.action_mask.copy(), rewards.copy()))
    return {
        name: np.stack(values) for name, values in zip(("obs", "mask", "rewards"), zip(*seen, strict=True), strict=True)
    }


def test_a_mask_in_the_observation_is_used_and_is_no_part_of_it():
    spec = robot().describe()
    assert spec.obs == BoxObs((53,), "float32", (BOARD, *HAND))
    assert spec.actions == ROBOT
    with make_world(robot()) as world:
        got = play(world, 12)  # the environment refuses illegal actions, and those outside its space
    assert got["mask"].shape == (13, 2, 7)
    assert set(got["mask"].sum(-1).ravel().tolist()) == {5}
    assert np.abs(got["rewards"][1:]).min() > 0
    assert why_not_replayable(robot(), False, 60.0) is None


def test_action_mask_false_leaves_the_mask_in_the_observation():
    spec = robot(action_mask=False).describe()
    assert spec.mask_size == 0
    assert isinstance(spec.obs, BoxObs)
    assert spec.obs.parts[0] == ObsPart("action_mask", (7,), 0)


def test_a_nested_mask_in_info():
    kwargs = {"nested_mask": True}
    assert robot(kwargs=kwargs).describe().mask_size == 0
    settings = robot(action_mask=True, kwargs=kwargs)
    assert settings.describe().actions == ROBOT
    with make_world(settings) as world, make_world(robot()) as other:
        assert np.array_equal(play(world, 12)["mask"], play(other, 12)["mask"])


def test_workers_make_no_difference():
    with make_world(robot(3)) as world, make_world(robot(3), 2) as parallel:
        one, two = play(world, 8), play(parallel, 8)
    assert all(np.array_equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environments_are_read_as_single_ones(mode: AutoresetMode):
    """The vector environment keeps the mask as a part, and hides it here; only episode 0 has the same seed."""
    envs = SyncVectorEnv([lambda: FreeRobot()] * 2, autoreset_mode=mode)
    with VectorWorld(envs, "toy", hide=["action_mask"]) as world:
        got = play(world, 4)
        assert world.world_spec.actions == MixedActions((2, 2, 3), (-1.0, -1.0), (1.0, 1.0))
        assert world.world_spec.obs == BoxObs((53,), "float32", (BOARD, *HAND))
        last = world.buffers.obs.copy()
        actions = np.zeros((2, 5), np.float32)
        *_, terminated, _, info = world.step(actions)
        assert terminated.all()
        assert (info["final_obs"][:, :50] <= 10).all()
        assert not np.array_equal(info["final_obs"], last)
        assert not np.array_equal(info["final_obs"], world.buffers.obs) or mode is AutoresetMode.NEXT_STEP
    assert (got["obs"][..., :50] == got["obs"][..., :50].round()).all()
    assert set(got["obs"][..., 50].ravel().tolist()) <= {0, 1, 2, 3}


class FreeRobot(Robot):
    """Accepts illegal moves."""

    def step(self, action: object) -> object:
        self.mask[:] = 1
        return super().step(action)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan", ["entry 'hand.1.heat'", "nan", "slot 4", "step 2"]),
        ("code", ["environment 4", "entry 'hand.0'", "value 5", "step 2"]),
        ("missing", ["environment 4", "'board'", "step 2"]),
        ("mask", ["environment 4", "no action mask in the observation", "step 2"]),
    ],
)
def test_a_bad_entry_is_named(fault: str, words: list[str]):
    with (
        make_world(robot(kwargs={"fault": fault}), env_ids=range(4, 6)) as world,
        pytest.raises(HoldfastError) as caught,
    ):
        play(world, 4)
    assert all(word in str(caught.value) for word in words), caught.value


def test_entries_of_any_world_are_hidden_by_name():
    words = ["env=gym:toy_nested:Robot-v0", "env.hide=[board, note, hand.1.heat.0]"]
    env = load_settings(words).env
    assert isinstance(env, GymEnv)
    assert env.hide == ["board", "note", "hand.1.heat.0"]
    obs = env.describe().obs
    assert isinstance(obs, BoxObs)
    assert [(part.name, part.shape) for part in obs.parts] == [("hand.0", ()), ("hand.1.heat", (1,))]
    hidden = PettingZooEnv(name="pettingzoo:mpe2.simple_spread_v3", hide=[0, 1])
    shown = PettingZooEnv(name="pettingzoo:mpe2.simple_spread_v3")
    sizes = [sum(settings.describe().obs.shape) for settings in (hidden, shown)]
    assert sizes[0] == sizes[1] - 2
    with pytest.raises(SettingsError, match=r"env\.hide=\[boat\].*no entry boat.*board"):
        robot(hide=["boat"]).describe()


def test_a_player_that_waits_may_do_anything():
    spec = turns().describe()
    assert spec.actions == DiscreteActions(tuple("012345678"), masked=True)
    assert spec.obs == BoxObs((18,), "float32", (ObsPart("observation", (3, 3, 2), 0, 9.0),))
    with make_world(turns()) as world:
        got = play(world, 8)
    for t, mask in enumerate(got["mask"]):
        acts, waits = mask[t % 6 % 2 :: 2], mask[1 - t % 6 % 2 :: 2]
        assert waits.all()
        assert (acts == (np.arange(9) >= t % 6)).all()


WORDS = [
    "env=gym:toy_nested:Robot-v0",
    "env.num_envs=4",
    "trainer.horizon=8",
    "trainer.batch_size=64",
    "trainer.minibatch_size=32",
    "trainer.update_epochs=1",
    "trainer.schedule.lr.kind=constant",
    "policy.hidden=8",
    "policy.encoder=[8]",
    "policy.heads=[8]",
    "progress=off",
]


def test_a_run_trains_resumes_exactly_and_evaluates(tmp_path):
    def run(name: str, steps: int) -> Path:
        words = [*WORDS, f"runs_dir={tmp_path}", f"run={name}", f"trainer.total_timesteps={steps}"]
        return train(load_settings(words)).run

    whole, resumed = run("whole", 256), (run("parts", 128), run("parts", 256))[1]
    assert figures(whole) == figures(resumed)
    assert max(row["parity_max_abs_logratio"] for row in read_metrics(whole)) <= 1e-5
    allowed = load_settings(WORDS).env  # a run folder may not name a module
    assert evaluate_run(whole, episodes=4, env=allowed).episodes == 4
