"""World x policy -> experience; owns memory while acting."""

from holdfast.rollout.collector import Collector, Rollout
from holdfast.rollout.episodes import Episode, EpisodeTracker
from holdfast.rollout.replay import score, state_after, value_of

__all__ = ["Collector", "Episode", "EpisodeTracker", "Rollout", "score", "state_after", "value_of"]
