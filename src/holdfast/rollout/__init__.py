"""Rollouts: run a policy in a world, keep the recurrent state between steps, and store the experience."""

from holdfast.rollout.collector import Collector, Rollout, check_experience_spec, first_inputs, last_actions
from holdfast.rollout.episodes import WINDOW, Episode, EpisodeTracker, RecentEpisodes, mean_info
from holdfast.rollout.play import play_episodes
