"""Recorded episodes: those that `holdfast evaluate` plays, with all that the policy was given and remembered."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from holdfast.config import load_settings
from holdfast.envs import python_env
from holdfast.envs.picture import GridPicture
from holdfast.evaluate import evaluate
from holdfast.policies import MettaAgent, Sampling, make_policy
from holdfast.view import recording as recording_module
from holdfast.view.recording import record
from support.echo import Echo, Shifts


class Lamp(gymnasium.Env):
    """A lamp that gets brighter, as a picture. Episodes end after 6 steps."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode=None, broken=False):
        self.render_mode, self.broken = render_mode, broken

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.full(1, self.count / 6, np.float32), 1.0, False, self.count == 6, {}

    def render(self):
        if self.broken:
            raise RuntimeError("no screen")
        return np.full((10, 20, 3), 40 * self.count, np.uint8)


def policy_for(env):
    torch.manual_seed(0)
    return make_policy(load_settings(["env=gym:CartPole-v1", "policy.hidden=8"]).policy, env.describe())


@pytest.mark.parametrize("words", [["env=memory"], ["env=gym:CartPole-v1"]])
@pytest.mark.parametrize("greedy", [True, False])
def test_the_episodes_are_those_that_evaluate_plays(words, greedy):
    settings = load_settings(words)
    policy = MettaAgent(settings.policy, settings.env.describe()).policy
    agents = policy.spec.agents_per_env
    found = record(policy, settings.env, 8, seed=5, greedy=greedy)
    played = evaluate(policy, settings.env, 8 * agents, 5, greedy, num_envs=4)
    episodes = [(t.env, e) for t in found.tracks for e in t.episodes]
    assert len(episodes) == 8
    assert sorted(r for _, e in episodes for r in e.returns) == pytest.approx(sorted(played.returns))
    assert {e.seed for _, e in episodes} == set(played.seeds)
    assert np.mean([e.length for _, e in episodes]) == pytest.approx(played.length_mean)


def test_the_recording_is_what_the_policy_was_given_and_answered():
    settings = load_settings(["env=memory"])
    policy = MettaAgent(settings.policy, settings.env.describe()).policy
    track = record(policy, settings.env, 8).tracks[1]
    policy.eval()
    state = policy.initial_state(track.agents)
    policy.sampling = Sampling(greedy=True)
    for step in range(track.steps):
        with torch.no_grad():
            acted = policy.act({key: torch.from_numpy(x[step : step + 1]) for key, x in track.inputs.items()}, state)
        state = acted.state
        np.testing.assert_array_equal(acted.actions[0].numpy(), track.actions[step])
        np.testing.assert_allclose(acted.values[0].numpy(), track.values[step], atol=1e-5)
        for leaf, kept in zip(state, track.states, strict=True):
            np.testing.assert_allclose(leaf.numpy(), kept[step], atol=1e-5)
    np.testing.assert_allclose(track.probabilities.sum(-1), 1, atol=1e-5)
    assert track.probabilities.argmax(-1).tolist() == track.actions.tolist()


def test_each_track_has_its_episodes_one_after_the_other():
    env = python_env(Echo, kwargs={"delay": 2})
    found = record(Shifts(env.describe(), 2, 2), env, 6)
    assert [len(track.episodes) for track in found.tracks] == [2, 2, 2, 2]  # a multiple of the environments
    for track in found.tracks:
        assert [(e.start, e.length, e.ended) for e in track.episodes] == [(0, 10, "terminated"), (10, 10, "terminated")]
        assert [track.rewards[e.start : e.start + e.length].sum() for e in track.episodes] == [1.0, 1.0]
        first = track.inputs["dones"] | track.inputs["truncateds"]
        assert np.flatnonzero(first[:, 0]).tolist() == [0, 10]
    assert found.notes == []


def test_truncated_episodes_are_named():
    env = python_env(Lamp)
    assert {e.ended for e in record(policy_for(env), env, 2).tracks[0].episodes} == {"truncated"}


def test_a_recording_that_would_be_too_long_stops_and_says_so(monkeypatch):
    monkeypatch.setattr(recording_module, "MAX_STEPS", 52)
    monkeypatch.setattr(recording_module, "MIN_STEPS", 1)
    env = python_env(Echo, kwargs={"delay": 2})
    found = record(Shifts(env.describe(), 2, 2), env, 12)
    assert [track.steps for track in found.tracks] == [13, 13, 13, 13]
    assert [e.ended for e in found.tracks[0].episodes] == ["terminated", "not ended"]
    assert found.tracks[0].episodes[1].length == 3
    assert len(found.notes) == 1
    assert "8 of 12" in found.notes[0]


def test_frames_are_drawn_if_the_environment_can():
    env = python_env(Lamp)
    track, frames = (found := record(policy_for(env), env, 2)).tracks[0], found.frames
    assert track.pictures[:6] == [0, 1, 2, 3, 4, 5]
    assert len(frames) == 6  # other episodes look the same
    assert frames.size == (20, 10)
    assert frames.image(3)[:4] == b"RIFF"


@pytest.mark.parametrize("kwargs", [{"broken": True}, {"render_mode": None}])
def test_without_frames_nothing_fails(kwargs):
    env = python_env(Lamp, kwargs=kwargs)
    found = record(policy_for(env), env, 2)
    assert set(found.tracks[0].pictures) == {None}


def test_grids_are_recorded_as_objects():
    settings = load_settings(["env=memory"])
    policy = MettaAgent(settings.policy, settings.env.describe()).policy
    track = record(policy, settings.env, 2).tracks[0]
    picture = track.pictures[0]
    assert isinstance(picture, GridPicture)
    assert sorted(o.agent for o in picture.objects if o.kind == "agent") == [*range(8)]
    assert {o.vibe for o in picture.objects if o.kind == "cue"} <= {"up", "down"}
    assert {(o.row, o.column) for o in picture.objects} <= {
        (r, c) for r in range(picture.height) for c in range(picture.width)
    }
    before, after = ({o.id: o for o in track.pictures[t].objects if o.agent >= 0} for t in (0, 1))
    for number, agent in after.items():  # agents go one step at most
        assert abs(agent.row - before[number].row) + abs(agent.column - before[number].column) <= 1
