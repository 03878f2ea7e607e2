"""Features and actions by name, so that a policy can move between worlds that number them differently."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.spec import ActionSpec, DiscreteActions, Feature, MultiDiscreteActions, TokenObs, WorldSpec


@dataclass(frozen=True)
class Channel:
    """One input channel: an amount ("inv:heart", divided by scale) or a category that is present ("tag=wall")."""

    name: str
    scale: float = 1.0


@dataclass(frozen=True)
class Vocabulary:
    """Channels and actions in the order of the policy's weights. New names are only appended."""

    channels: tuple[Channel, ...] = ()
    actions: tuple[str, ...] = ()

    @staticmethod
    def of(spec: WorldSpec) -> Vocabulary:
        return Vocabulary(channels_of(spec), action_names(spec.actions))

    def extended(self, spec: WorldSpec) -> Vocabulary:
        """This vocabulary plus the new names of a world. Known channels keep the scale they were learned with."""
        known = {channel.name for channel in self.channels}
        return Vocabulary(
            self.channels + tuple(channel for channel in channels_of(spec) if channel.name not in known),
            self.actions + tuple(name for name in action_names(spec.actions) if name not in self.actions),
        )

    def missing(self, spec: WorldSpec) -> list[str]:
        """Names of a world that are not in the vocabulary."""
        more = self.extended(spec)
        new_channels = [channel.name for channel in more.channels[len(self.channels) :]]
        return new_channels + [f"action {name}" for name in more.actions[len(self.actions) :]]

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Vocabulary:
        """From what dataclasses.asdict returned."""
        return Vocabulary(tuple(Channel(**channel) for channel in data["channels"]), tuple(data["actions"]))


class Adaptive(nn.Module):
    """A layer that depends on how the current world numbers its features or actions."""

    finds: ClassVar[Literal["features", "actions"] | None] = None  # looked up by name

    @abstractmethod
    def adapt(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        """Switch to this world. Weights grow to the vocabulary's size; existing ones stay as they are."""


def grow(weight: Tensor, size: int, axis: int = 0) -> Tensor:
    """Append zeros along an axis up to `size`, for names that are new. A weight of that size is returned as it is."""
    extra = size - weight.shape[axis]
    if extra <= 0:
        return weight
    padding = (0, 0) * (weight.dim() - 1 - axis) + (0, extra)  # F.pad counts axes from the last
    return nn.Parameter(F.pad(weight.detach(), padding))


def channel_names(feature: Feature) -> list[str]:
    return [f"{feature.name}={category}" for category in feature.categories] or [feature.name]


def channels_of(spec: WorldSpec) -> tuple[Channel, ...]:
    if not isinstance(spec.obs, TokenObs):
        return ()
    return tuple(
        Channel(name, 1.0 if feature.categories else feature.normalization)
        for feature in sorted(spec.obs.features, key=lambda feature: feature.id)
        for name in channel_names(feature)
    )


def action_names(actions: ActionSpec) -> tuple[str, ...]:
    """One name per logit of a flat action list; () for other kinds of actions."""
    match actions:
        case DiscreteActions(names=names):
            return names
        case MultiDiscreteActions(arguments=arguments) if arguments:
            return tuple(f"{kind}:{argument}" for kind, count in enumerate(arguments) for argument in range(count))
        case _:
            return ()
