"""The interface between worlds and policies: tensor names, observation specs and action specs."""

from holdfast.spec.world import (
    ActionSpec,
    BoxActions,
    BoxObs,
    DiscreteActions,
    DiscreteObs,
    Feature,
    MixedActions,
    MultiDiscreteActions,
    ObsPart,
    ObsSpec,
    TokenObs,
    WorldSpec,
)
