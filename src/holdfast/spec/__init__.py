"""What worlds and policies agree on without knowing each other: key names, observations, actions."""

from holdfast.spec.world import (
    ActionSpec,
    BoxActions,
    BoxObs,
    DiscreteActions,
    DiscreteObs,
    Feature,
    MultiDiscreteActions,
    ObsPart,
    ObsSpec,
    TokenObs,
    WorldSpec,
)

__all__ = [
    "ActionSpec",
    "BoxActions",
    "BoxObs",
    "DiscreteActions",
    "DiscreteObs",
    "Feature",
    "MultiDiscreteActions",
    "ObsPart",
    "ObsSpec",
    "TokenObs",
    "WorldSpec",
]
