"""PPO on tensors, independent of worlds and policies: experience buffer, advantages, losses and minibatches."""

from holdfast.ppo.advantages import discounted_returns, gae, vtrace
from holdfast.ppo.experience import Experience, experience_bytes
from holdfast.ppo.losses import Losses, explained_variance, normalize_advantages, ppo_losses
from holdfast.ppo.sampling import prioritized_segments, segment_minibatches, segment_priorities
from holdfast.ppo.schedules import scheduled
from holdfast.ppo.segments import BurnIn, Replay, Segments, state_rows
from holdfast.ppo.weights import clip_weights_, l2_to_init_loss, weight_limits

__all__ = [
    "BurnIn",
    "Experience",
    "Losses",
    "Replay",
    "Segments",
    "clip_weights_",
    "discounted_returns",
    "explained_variance",
    "gae",
    "l2_to_init_loss",
    "normalize_advantages",
    "ppo_losses",
    "prioritized_segments",
    "scheduled",
    "segment_minibatches",
    "segment_priorities",
    "state_rows",
    "vtrace",
    "weight_limits",
]
