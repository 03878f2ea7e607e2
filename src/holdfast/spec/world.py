"""Observation and action specs for a world, as plain data that can be stored in a checkpoint."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, get_args


@dataclass(frozen=True)
class Feature:
    """One token attribute of a grid world.

    If `categories` is not empty, the token value is an index into it (tag, vibe, last_action). Each category needs a
    separate channel, because, as a plain number, category 0 would look like an empty cell. Ids of features and categories
    may differ between worlds; policies identify them by name.
    """

    id: int
    name: str
    normalization: float
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class TokenObs:
    """Tokens [num_tokens, 3] uint8: coordinate byte (row << 4 | column), attribute id, value.

    Coordinate 0xFF marks an unused token, 0xFE a global token, which describes the agent and not a cell of the window.
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
    """One leaf of a nested observation inside the packed vector: `vector[start : start + size].reshape(shape)`."""

    name: str  # the keys of Dicts and indices of Tuples on the way to it: "inventory.gold"
    shape: tuple[int, ...]
    start: int
    scale: float = 1.0  # divisor that scales the values of an image to about 1
    sizes: tuple[int, ...] = ()  # categories per value, if the values are indices of categories; () for numbers

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class BoxObs:
    """An array of numbers. `parts` lists the leaves of any other space, packed into one flat vector; empty for a Box."""

    shape: tuple[int, ...]
    dtype: str
    parts: tuple[ObsPart, ...] = ()
    scale: float = 1.0  # as in ObsPart


@dataclass(frozen=True)
class DiscreteObs:
    """One of `n` symbols: int64, shape ()."""

    n: int
    dtype = "int64"
    shape = ()


@dataclass(frozen=True)
class DiscreteActions:
    """One of several named actions: int64, shape (). `masked`: each observation comes with a mask of legal actions."""

    names: tuple[str, ...]
    masked: bool = False
    dtype = "int64"
    shape = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of options of the one choice, as in MultiDiscreteActions."""
        return (len(self.names),)

    @property
    def mask_sizes(self) -> tuple[int, ...]:
        """Number of entries in the action mask (bool, true: legal) for each choice; () if actions are not masked."""
        return self.sizes if self.masked else ()


@dataclass(frozen=True)
class MultiDiscreteActions:
    """Several choices at once: int64, shape (len(sizes),).

    If `arguments` is not empty, the two choices are an action type and its argument; type k has `arguments[k]` valid
    arguments, so not every pair is valid.
    """

    sizes: tuple[int, ...]
    arguments: tuple[int, ...] = ()
    masked: bool = False  # as in DiscreteActions
    dtype = "int64"

    @property
    def mask_sizes(self) -> tuple[int, ...]:
        """Number of mask entries for each choice, or of valid (type, argument) pairs; () if actions are not masked."""
        if not self.masked:
            return ()
        return (sum(self.arguments),) if self.arguments else self.sizes

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sizes),)


@dataclass(frozen=True)
class BoxActions:
    """A flat vector of real numbers from `low` to `high`: float32, shape (len(low),). Worlds clip actions."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    dtype = "float32"
    sizes = ()  # no choices, see DiscreteActions
    mask_sizes = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.low),)


@dataclass(frozen=True)
class MixedActions:
    """Choices and real numbers at once: float32, shape (len(sizes) + len(low),), the choices first."""

    sizes: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    masked: bool = False  # as in DiscreteActions, for the choices
    dtype = "float32"

    @property
    def mask_sizes(self) -> tuple[int, ...]:
        """Number of mask entries for each choice; () if actions are not masked."""
        return self.sizes if self.masked else ()

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sizes) + len(self.low),)


ObsSpec = TokenObs | BoxObs | DiscreteObs
ActionSpec = DiscreteActions | MultiDiscreteActions | BoxActions | MixedActions


@dataclass(frozen=True)
class WorldSpec:
    """Description of a world, from which a policy is built: observations, actions and number of agents."""

    name: str
    obs: ObsSpec
    actions: ActionSpec
    agents_per_env: int
    # Spaces of the environment as JSON, for agents outside of Holdfast: see `envs/spaces/saved.py`. They say nothing that
    # `obs` and `actions` leave open for a policy, so they are not compared.
    spaces: str = field(default="", compare=False)

    @property
    def mask_size(self) -> int:
        """Number of entries in the action mask of each observation; 0: no mask."""
        return sum(self.actions.mask_sizes)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a checkpoint; `from_json` reads it back."""
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
        fields["parts"] = tuple(ObsPart(**_tuples(part)) for part in fields["parts"])
    return kinds[data["kind"]](**_tuples(fields))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with tuples in place of the lists of JSON."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
