"""Rollouts: run a policy in a world, keep the recurrent state between steps, and store the experience."""

from holdfast.rollout.collector import Collector, Rollout, check_experience_spec, first_inputs, last_actions
from holdfast.rollout.episodes import Episode, EpisodeTracker, RecentEpisodes
