"""World x policy -> experience; owns memory while acting."""

from holdfast.rollout.arrivals import arrivals, check_experience_spec, first_arrivals
from holdfast.rollout.collector import Collector, Rollout
from holdfast.rollout.episodes import Episode, EpisodeTracker
from holdfast.rollout.replay import score, state_after, value_of

__all__ = [
    "Collector",
    "Episode",
    "EpisodeTracker",
    "Rollout",
    "arrivals",
    "check_experience_spec",
    "first_arrivals",
    "score",
    "state_after",
    "value_of",
]
