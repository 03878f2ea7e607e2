"""Action masks of environments: they arrive with their observation, in any process, and a bad one is told at its source."""

import numpy as np
import pytest
from toy_masks import legal

from holdfast.config import load_settings
from holdfast.envs import GymEnv, GymVectorEnv, PettingZooEnv, World, make_world
from holdfast.errors import HoldfastError, SettingsError
from holdfast.spec import DiscreteActions, MultiDiscreteActions, WorldSpec


def gate(num_envs: int = 2, **kwargs: object) -> GymEnv:
    return GymEnv(name="gym:toy_masks:Gate-v0", num_envs=num_envs, action_mask=True, kwargs=kwargs)


def gates(num_envs: int = 2, **kwargs: object) -> PettingZooEnv:
    return PettingZooEnv(name="pettingzoo:toy_masks", num_envs=num_envs, action_mask=True, kwargs=kwargs)


def legal_actions(world: World, mask: np.ndarray) -> np.ndarray:
    """The first legal choice of every slot, of every part."""
    parts = np.split(mask, np.cumsum(world.world_spec.actions.mask_sizes)[:-1], axis=1)
    first = np.stack([part.argmax(1) for part in parts], 1)
    return first[:, 0] if isinstance(world.world_spec.actions, DiscreteActions) else first


def play(world: World, num_steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """[num_steps + 1, slots, ...] observations and masks, [num_steps, slots, ...] of what each step brought besides."""
    obs, info = world.reset(seed=seed)
    rows: dict[str, list[np.ndarray]] = {"obs": [obs.copy()], "mask": [info["action_mask"].copy()]}
    for _ in range(num_steps):
        obs, _, terminated, truncated, info = world.step(legal_actions(world, info["action_mask"]))
        ended = (terminated | truncated) & info["valid"]
        step = {"obs": obs, "mask": info["action_mask"], "ended": ended, "valid": info["valid"]}
        step["final_obs"] = np.where(ended[:, None], info["final_obs"], 0)
        step["final_mask"] = np.where(ended[:, None], info["final_action_mask"], False)
        for name, array in step.items():
            rows.setdefault(name, []).append(array.copy())
    return {name: np.stack(arrays) for name, arrays in rows.items()}


@pytest.mark.parametrize("parts", [False, True])
def test_every_mask_belongs_to_its_observation(parts: bool):
    """After an end too: the next episode's first observation comes with its own mask, the last one's is kept aside."""
    with make_world(gate(parts=parts)) as world:
        got = play(world, 20)
    choices = 5 if parts else 4
    assert np.array_equal(got["mask"], legal(got["obs"], choices))
    assert got["ended"].sum(0).min() >= 5
    ended = got["ended"]
    assert np.array_equal(got["final_mask"][ended], legal(got["final_obs"][ended], choices))
    assert (got["final_mask"][ended] != got["mask"][1:][ended]).any(1).any()


def test_agents_have_masks_of_their_own_and_waiting_slots_may_do_anything():
    with make_world(gates()) as world:
        got = play(world, 12)
    present = np.ones((13, 4), bool)
    present[[2, 3, 6, 7, 10, 11]] = [False, True, False, True]  # ann has left after step 2 of 4
    assert np.array_equal(got["mask"][present], legal(got["obs"])[present])
    assert got["mask"][~present].all()
    ended = got["ended"]
    assert np.array_equal(got["final_mask"][ended], legal(got["final_obs"][ended]))


@pytest.mark.parametrize("settings", [gate(num_envs=3), gates(num_envs=3)], ids=["gym", "pettingzoo"])
def test_masks_do_not_depend_on_the_number_of_workers(settings: GymEnv | PettingZooEnv):
    with make_world(settings) as world:
        alone = play(world, 20)
    for num_workers in (1, 2):
        with make_world(settings, num_workers) as world:
            got = play(world, 20)
        assert all(np.array_equal(alone[name], got[name]) for name in alone), num_workers


def test_the_spec_says_that_actions_are_masked_and_keeps_it():
    for settings, actions, size in (
        (gate(), DiscreteActions(("0", "1", "2", "3"), masked=True), 4),
        (gate(parts=True), MultiDiscreteActions((2, 3), masked=True), 5),
        (gates(), DiscreteActions(("0", "1", "2", "3"), masked=True), 4),
    ):
        spec = settings.describe()
        assert spec.actions == actions
        assert spec.mask_size == size
        assert WorldSpec.from_json(spec.to_json()) == spec
    unmasked = gate().model_copy(update={"action_mask": False}).describe()
    assert unmasked.mask_size == 0
    assert unmasked.actions == DiscreteActions(("0", "1", "2", "3"))
    with make_world(gate().model_copy(update={"action_mask": False})) as world:
        _, info = world.reset(seed=0)
        assert "action_mask" not in info


FAULTS = [
    ("missing", "no info['action_mask']"),
    ("size", "an action mask of shape (3,), expected (4,),"),
    ("values", "an action mask with the value 2, expected only 0 and 1,"),
    ("nan", "an action mask with the value nan, expected only 0 and 1,"),
    ("text", "an action mask of dtype <U3, expected bool or 0 and 1,"),
    ("nothing legal", "an action mask with no legal action"),
]


@pytest.mark.parametrize(("fault", "words"), FAULTS)
@pytest.mark.parametrize(("faulty", "call", "step"), [(0, "reset()", 3), (2, "step()", 5)])
def test_a_bad_mask_is_told_with_its_origin(fault: str, words: str, faulty: int, call: str, step: int):
    """Episode 0 has 3 steps, so its reset falls into step 3 and step 2 of episode 1 is step 5 of the run."""
    with (
        make_world(gate(fault=fault, faulty=faulty), env_ids=range(4, 6)) as world,
        pytest.raises(HoldfastError) as caught,
    ):
        play(world, 8)
    assert type(caught.value) is HoldfastError
    told = f"gym:toy_masks:Gate-v0: environment 4 (slot 4) returned {words} from {call} at step {step}."
    assert str(caught.value) == told


def test_every_choice_needs_a_legal_action():
    with (
        make_world(gate(fault="nothing legal in part 1", parts=True)) as world,
        pytest.raises(HoldfastError, match="no legal action for choice 1 from step"),
    ):
        play(world, 8)


def test_a_bad_mask_of_an_agent_names_it():
    with make_world(gates(fault="missing"), env_ids=range(2, 4)) as world, pytest.raises(HoldfastError) as caught:
        play(world, 8)
    words = "environment 2 (slots 4 to 5) returned for 'bob' (slot 5) no info['action_mask'] from step() at step 6."
    assert words in str(caught.value)


def test_a_bad_mask_in_a_worker_is_told_here():
    with make_world(gate(fault="size"), 2, worker_failures=0) as world, pytest.raises(HoldfastError) as caught:
        play(world, 8)
    assert "environment 0 (slot 0) returned an action mask of shape (3,)" in str(caught.value)
    assert "at step 5." in str(caught.value)


@pytest.mark.parametrize(("fault", "words"), FAULTS)
@pytest.mark.parametrize("make", [gate, gates])
def test_a_first_mask_that_is_bad_is_refused_before_a_worker_starts(make, fault: str, words: str, monkeypatch):
    if make is gates and fault == "nothing legal":
        return  # an agent that cannot act now
    monkeypatch.setattr("holdfast.envs.workers.Worker", None)
    settings = make(fault=fault, faulty=0, first=True)
    with pytest.raises(SettingsError) as caught:
        make_world(settings, 2)
    assert str(caught.value).startswith("env.action_mask: ")
    assert words in str(caught.value)
    assert "env.action_mask=false" in str(caught.value)


def test_an_episodes_last_mask_may_be_missing_or_allow_nothing():
    """Nobody acts on a last observation."""
    for settings in (gate(at_end=False), gate(fault="nothing legal", faulty=4)):
        with make_world(settings) as world:
            got = play(world, 20)
        assert np.array_equal(got["mask"], legal(got["obs"]))


@pytest.mark.parametrize(
    "settings",
    [
        GymEnv(name="gym:Pendulum-v1", action_mask=True),
        PettingZooEnv(name="pettingzoo:mpe2.simple_spread_v3", action_mask=True, kwargs={"continuous_actions": True}),
    ],
    ids=["gym", "pettingzoo"],
)
def test_real_numbers_have_no_masks(settings: GymEnv | PettingZooEnv):
    with pytest.raises(SettingsError, match=r"env\.action_mask=true.*real numbers"):
        settings.describe()


@pytest.mark.parametrize(
    "settings",
    [
        GymEnv(name="gym:CartPole-v1", action_mask=True),
        PettingZooEnv(name="pettingzoo:mpe2.simple_spread_v3", action_mask=True),
    ],
    ids=["gym", "pettingzoo"],
)
def test_an_environment_without_masks_is_refused(settings: GymEnv | PettingZooEnv):
    with pytest.raises(SettingsError, match=r"no info\['action_mask'\]"):
        settings.describe()


def test_vector_environments_refuse_the_key():
    assert "action_mask" not in GymVectorEnv.model_fields
    with pytest.raises(SettingsError, match=r"env\.action_mask belongs to"):
        load_settings(["env=gymvec:CartPole-v1", "env.action_mask=true"])
