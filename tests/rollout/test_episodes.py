"""Finished episodes: what environments reported is kept, averaged, saved and restored exactly."""

import numpy as np

from holdfast.envs.episode_info import MAX_NAMES
from holdfast.rollout import Episode, EpisodeTracker, RecentEpisodes, mean_info


def test_the_numbers_belong_to_the_slot_that_ended():
    tracker = EpisodeTracker(3, first_slot=10)
    ended, valid = np.array([True, False, True]), np.array([True, True, False])
    (episode,) = tracker.step(np.ones(3), ended, valid, 0, [(0, {"x": 1.0}), (2, {"x": 2.0})])
    assert (episode.slot, episode.info) == (10, {"x": 1.0})


def test_means_are_over_the_episodes_that_report_a_number():
    episodes = [Episode(0, 0, 0.0, 1, {"a": 1.0, "b": 4.0}), Episode(0, 1, 0.0, 1, {"a": 2.0}), Episode(0, 2, 0.0, 1)]
    assert mean_info(episodes) == {"info/a": 1.5, "info/b": 4.0}
    assert mean_info([]) == {}
    many = [Episode(0, 0, 0.0, 1, {f"n{i:03}": 1.0}) for i in reversed(range(100))]
    assert [*mean_info(many, "")] == [f"n{i:03}" for i in range(MAX_NAMES)]


def test_saved_and_restored_exactly():
    recent = RecentEpisodes()
    recent.add([Episode(i, i % 4, i / 3, i, {"a": i / 7, **({"b": 1e-300 * i} if i % 2 else {})}) for i in range(130)])
    other = RecentEpisodes()
    other.restore(recent.tensors(), recent.count, recent.info_names)
    assert [e.info for e in other.recent] == [e.info for e in recent.recent]
    assert mean_info(other.recent) == mean_info(recent.recent)
    assert other.count == 130


def test_episodes_without_numbers_are_saved_as_before():
    recent, other = RecentEpisodes(), RecentEpisodes()
    recent.add([Episode(0, 0, 1.0, 2)])
    assert set(recent.tensors()) == {"slot", "episode_return", "length"}
    other.restore(recent.tensors(), 1)
    assert [*other.recent] == [*recent.recent]
