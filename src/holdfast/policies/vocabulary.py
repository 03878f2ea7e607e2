"""Match features and actions by name, so that a policy can run in worlds that number them differently."""

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
    """One input channel: an amount ("inv:heart", divided by `scale`) or a category ("tag=wall", 1 or 0)."""

    name: str
    scale: float = 1.0


@dataclass(frozen=True)
class Vocabulary:
    """The policy's channel and action names, in the order of its weights. New names are always appended at the end."""

    channels: tuple[Channel, ...] = ()
    actions: tuple[str, ...] = ()

    @staticmethod
    def of(spec: WorldSpec) -> Vocabulary:
        return Vocabulary(channels_of(spec), action_names(spec.actions))

    def extended(self, spec: WorldSpec) -> Vocabulary:
        """Return this vocabulary plus the new names of a world. Known channels keep the scale used in training."""
        known = {channel.name for channel in self.channels}
        return Vocabulary(
            self.channels + tuple(channel for channel in channels_of(spec) if channel.name not in known),
            self.actions + tuple(name for name in action_names(spec.actions) if name not in self.actions),
        )

    def missing(self, spec: WorldSpec) -> list[str]:
        """Return the channel and action names of a world that are not in this vocabulary."""
        more = self.extended(spec)
        new_channels = [channel.name for channel in more.channels[len(self.channels) :]]
        return new_channels + [f"action {name}" for name in more.actions[len(self.actions) :]]

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Vocabulary:
        """Build a vocabulary from the result of dataclasses.asdict()."""
        return Vocabulary(tuple(Channel(**channel) for channel in data["channels"]), tuple(data["actions"]))


class Adaptive(nn.Module):
    """Base class of layers that depend on how the current world numbers its features or actions."""

    finds: ClassVar[Literal["features", "actions"] | None] = None  # what the layer looks up by name

    @abstractmethod
    def adapt(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        """Switch to this world. Weights grow to the size of the vocabulary; existing weights do not change."""


def grow(weight: Tensor, size: int, axis: int = 0) -> Tensor:
    """Append zeros along `axis` up to `size`, for new names. Return the weight unchanged if it already has that size."""
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
    """Return one name per logit for discrete actions and (type, argument) actions; () for all other action specs."""
    match actions:
        case DiscreteActions(names=names):
            return names
        case MultiDiscreteActions(arguments=arguments) if arguments:
            return tuple(f"{kind}:{argument}" for kind, count in enumerate(arguments) for argument in range(count))
        case _:
            return ()
