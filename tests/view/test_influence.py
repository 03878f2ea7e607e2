"""What decided an action, for policies whose memory is known exactly."""

import math

import numpy as np
import pytest
import torch

from holdfast.config import load_settings
from holdfast.envs import python_env
from holdfast.policies import MettaAgent
from holdfast.view import influence
from holdfast.view.influence import influences, lookback_of
from holdfast.view.recording import record
from support.echo import Echo, First, Shifts

# `Shifts` gives the logit 0 to one action, and 1 or -1 to the other: the log-prob of each changes by 1.
MOVED = 1 - math.exp(-1)


def influence_of(policy, env, episodes=8, lookback=None):
    """Return [T, lookback] of the first track, and the recording."""
    recording = record(policy, env, episodes)
    lookback = lookback or lookback_of(recording, policy)
    return influences(policy, recording, lookback)[0][:, 0], recording


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_only_the_observation_that_counts_has_an_influence(delay):
    env = python_env(Echo, kwargs={"delay": delay})
    found, recording = influence_of(Shifts(env.describe(), delay, max(delay, 1)), env)
    for episode in recording.tracks[0].episodes:
        steps = found[episode.start : episode.start + episode.length]
        assert steps[delay:, delay] == pytest.approx(MOVED, abs=1e-5)
        others = np.delete(steps, delay, axis=1)
        assert np.abs(others).max() < 1e-6
        assert np.abs(steps[:delay]).max(initial=0) < 1e-6  # nothing that counts has been seen yet


def test_the_first_observation_of_the_episode_decides_every_action():
    env = python_env(Echo, kwargs={"delay": 0, "cue_at_start": True})
    found, recording = influence_of(First(env.describe(), 0, 1), env)
    for episode in recording.tracks[0].episodes:
        for step in range(episode.length):
            assert found[episode.start + step].argmax() == step
            assert found[episode.start + step, step] == pytest.approx(MOVED, abs=1e-5)


def test_nothing_is_shown_beyond_the_lookback():
    env = python_env(Echo, kwargs={"delay": 4})
    policy = Shifts(env.describe(), 4, 4)
    assert np.abs(influence_of(policy, env, lookback=4)[0]).max() < 1e-6
    assert np.abs(influence_of(policy, env, lookback=5)[0]).max() > 0.5


class Lifelong(Shifts):
    def __init__(self, spec, delay):
        super().__init__(spec, delay, delay)
        self.memory_scope = "lifetime"


def test_lifetime_memory_reaches_into_earlier_episodes():
    env = python_env(Echo, kwargs={"delay": 2})
    found, recording = influence_of(Lifelong(env.describe(), 2), env, episodes=8)
    second = recording.tracks[0].episodes[1]
    assert found[second.start, 2] == pytest.approx(MOVED, abs=1e-5)


def test_rows_are_replayed_in_parts(monkeypatch):
    env = python_env(Echo, kwargs={"delay": 2})
    policy = Shifts(env.describe(), 2, 2)
    whole, _ = influence_of(policy, env)
    monkeypatch.setattr(influence, "ROWS", 8)
    parts, _ = influence_of(policy, env)
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_the_lookback_of_long_recordings_is_limited(monkeypatch):
    env = python_env(Echo, kwargs={"delay": 60})
    policy = Shifts(env.describe(), 0, 1)
    recording = record(policy, env, 4)
    assert lookback_of(recording, policy) == 68
    monkeypatch.setattr(influence, "BUDGET", 1)
    assert lookback_of(recording, policy) == influence.MIN_LOOKBACK


def test_all_agents_of_a_maze_without_changing_the_policy():
    settings = load_settings(["env=memory"])
    policy = MettaAgent(settings.policy, settings.env.describe()).policy
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    random_state = torch.get_rng_state()
    recording = record(policy, settings.env, 4)
    track, found = recording.tracks[0], influences(policy, recording, 5)[0]
    assert found.shape == (track.steps, 8, 5)
    assert 0 < found.max() <= 1
    assert found.min() >= 0
    assert (found.max((0, 2)) > 0).all()
    assert torch.equal(random_state, torch.get_rng_state())
    assert all(torch.equal(weight, before[name]) for name, weight in policy.state_dict().items())
