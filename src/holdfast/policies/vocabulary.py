"""What a policy knows, by name, so that it can move between worlds that number things differently."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from holdfast.spec import ActionSpec, DiscreteActions, Feature, MultiDiscreteActions, TokenObs, WorldSpec


@dataclass(frozen=True)
class Channel:
    """One thing a token can say: an amount ("inv:heart", divided by scale), or that a category holds ("tag=wall")."""

    name: str
    scale: float = 1.0


@dataclass(frozen=True)
class Vocabulary:
    """Channels and actions in the order in which the policy's weights have them. Only ever grows at the end."""

    channels: tuple[Channel, ...] = ()
    actions: tuple[str, ...] = ()

    @staticmethod
    def of(spec: WorldSpec) -> Vocabulary:
        return Vocabulary(channels_of(spec), action_names(spec.actions))

    def extended(self, spec: WorldSpec) -> Vocabulary:
        """With what this world has and the vocabulary lacks. A known channel keeps the scale it was learned with."""
        known = {channel.name for channel in self.channels}
        return Vocabulary(
            self.channels + tuple(channel for channel in channels_of(spec) if channel.name not in known),
            self.actions + tuple(name for name in action_names(spec.actions) if name not in self.actions),
        )

    def missing(self, spec: WorldSpec) -> list[str]:
        """Names of this world that the vocabulary lacks."""
        more = self.extended(spec)
        new_channels = [channel.name for channel in more.channels[len(self.channels) :]]
        return new_channels + [f"action {name}" for name in more.actions[len(self.actions) :]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Vocabulary:
        return Vocabulary(tuple(Channel(**channel) for channel in data["channels"]), tuple(data["actions"]))


class Adaptive(nn.Module):
    """A part of a policy that depends on how the present world numbers its features or its actions."""

    finds: ClassVar[Literal["features", "actions"] | None] = None  # what it looks up by name

    @abstractmethod
    def adapt(self, spec: WorldSpec, vocabulary: Vocabulary) -> None:
        """Read this world from now on. Weights grow to the vocabulary's size; those that exist stay as they are."""


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
    """One name per logit of a flat action list; () where there is no such list."""
    match actions:
        case DiscreteActions(names=names):
            return names
        case MultiDiscreteActions(arguments=arguments) if arguments:
            return tuple(f"{kind}:{argument}" for kind, count in enumerate(arguments) for argument in range(count))
        case _:
            return ()
