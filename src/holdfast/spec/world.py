"""Observation and action specs of a world, as plain values that can be stored in a checkpoint."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, get_args


@dataclass(frozen=True)
class Feature:
    """One token attribute of a grid world.

    With categories, the value is the index of one of them (tag, vibe, last_action). Each category needs its own
    channel, because in a grid of values category 0 would look like nothing. Ids of features and categories may differ
    between worlds; policies identify them by name.
    """

    id: int
    name: str
    normalization: float
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class TokenObs:
    """Tokens [num_tokens, 3] uint8: coordinate byte (row << 4 | column), attribute id, value.

    Coordinate 0xFF marks an unused token, 0xFE a global token (of the agent, not of a cell of the window).
    """

    num_tokens: int
    window: tuple[int, int]  # rows, columns
    features: tuple[Feature, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.num_tokens, 3)

    dtype = "uint8"


@dataclass(frozen=True)
class ObsPart:
    """One entry of a Dict observation inside the packed vector: `vector[start : start + size].reshape(shape)`."""

    name: str
    shape: tuple[int, ...]
    start: int
    scale: float = 1.0  # divisor that scales an image to about 1

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class BoxObs:
    """An array of numbers. `parts` describes a Dict that was packed into one flat vector, and is empty otherwise."""

    shape: tuple[int, ...]
    dtype: str
    parts: tuple[ObsPart, ...] = ()
    scale: float = 1.0  # as in ObsPart


@dataclass(frozen=True)
class DiscreteObs:
    """One of n symbols, as an int64 scalar."""

    n: int
    dtype = "int64"
    shape = ()


@dataclass(frozen=True)
class DiscreteActions:
    """One of several named actions: int64, shape (). masked: each observation comes with a mask of legal actions."""

    names: tuple[str, ...]
    masked: bool = False
    dtype = "int64"
    shape = ()

    @property
    def mask_sizes(self) -> tuple[int, ...]:
        """Entries of the action mask (bool, true: legal) per choice; () if actions are not masked."""
        return (len(self.names),) if self.masked else ()


@dataclass(frozen=True)
class MultiDiscreteActions:
    """Several choices at once: int64, shape (len(sizes),).

    With `arguments` they are a type and its argument; type k has arguments[k] arguments, so not every pair exists.
    """

    sizes: tuple[int, ...]
    arguments: tuple[int, ...] = ()
    masked: bool = False  # as in DiscreteActions
    dtype = "int64"

    @property
    def mask_sizes(self) -> tuple[int, ...]:
        """As in DiscreteActions; the masks of the choices are concatenated."""
        if not self.masked:
            return ()
        return (sum(self.arguments),) if self.arguments else self.sizes

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sizes),)


@dataclass(frozen=True)
class BoxActions:
    """A flat vector of real numbers within limits: float32, shape (len(low),). Worlds clip them."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype = "float32"
    mask_sizes = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.low),)


ObsSpec = TokenObs | BoxObs | DiscreteObs
ActionSpec = DiscreteActions | MultiDiscreteActions | BoxActions


@dataclass(frozen=True)
class WorldSpec:
    """What a policy may know about a world in advance."""

    name: str
    obs: ObsSpec
    actions: ActionSpec
    agents_per_env: int

    @property
    def mask_size(self) -> int:
        """Entries of the action mask that comes with each observation; 0: no mask."""
        return sum(self.actions.mask_sizes)

    def to_json(self) -> dict[str, Any]:
        """Plain data for a checkpoint, which `from_json` reads back."""
        parts = {"obs": self.obs, "actions": self.actions}
        return asdict(self) | {name: {"kind": type(part).__name__, **asdict(part)} for name, part in parts.items()}

    @staticmethod
    def from_json(data: dict[str, Any]) -> WorldSpec:
        return WorldSpec(**data | {name: _read(data[name]) for name in ("obs", "actions")})


def _read(data: dict[str, Any]) -> Any:
    kinds: dict[str, Any] = {kind.__name__: kind for kind in get_args(ObsSpec) + get_args(ActionSpec)}
    fields: dict[str, Any] = {key: value for key, value in data.items() if key != "kind"}
    if "features" in fields:
        fields["features"] = tuple(Feature(**{**f, "categories": tuple(f["categories"])}) for f in fields["features"])
    if "parts" in fields:
        fields["parts"] = tuple(ObsPart(**{**p, "shape": tuple(p["shape"])}) for p in fields["parts"])
    return kinds[data["kind"]](
        **{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    )
