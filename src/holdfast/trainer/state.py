"""The state of a run without its tensors: the content of a checkpoint's facts.json."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from holdfast.errors import CheckpointError

Count = Annotated[int, Field(strict=True, ge=0, lt=2**64)]
Size = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Progress:
    """Progress of a run since it was first started, across all resumes."""

    update: Count = 0
    agent_steps: Count = 0
    wall_s: Size = 0.0
    worst_parity: Size = 0.0  # largest |log-ratio| of replay parity so far
    episode_return: Annotated[float, Field(strict=True)] | None = None
    resumed: Count = 0  # number of resumes
    exact: Annotated[bool, Field(strict=True)] = True  # true if every resume so far was bit for bit

    def after(self, metrics: Mapping[str, Any], max_log_ratio: float) -> Progress:
        """Return the progress after one more update, with these metrics and this largest |log-ratio|."""
        # JSON has no infinity; NaN is at least as bad as the largest number
        parity = max_log_ratio if math.isfinite(max_log_ratio) else sys.float_info.max
        now = {name: metrics[name] for name in ("update", "agent_steps", "wall_s", "episode_return")}
        return replace(self, **now, worst_parity=max(self.worst_parity, parity))


@dataclass(frozen=True)
class GlobalRandomState:
    """The random state that is not in rng.safetensors: NumPy (pos, has_gauss, gauss), Python (gauss_next)."""

    numpy: tuple[int, int, float]
    python: float | None


@dataclass(frozen=True, kw_only=True)
class RunState(Progress):
    """Everything in a run's state that is not a tensor. Field names are the keys of facts.json."""

    episodes: Count  # finished so far
    info_names: list[
        Annotated[str, Field(strict=True)]
    ]  # of the numbers that environments reported; see RecentEpisodes
    world_seed: Count
    world_steps: Count
    optimizer: dict[str, Any]
    skipped_in_a_row: Count  # gradient steps
    rng: GlobalRandomState
    world: dict[str, Any]  # the WorldSpec the agent was built for
    policy: dict[str, Any]  # the policy's settings
    agent: dict[str, Any]  # MettaAgent.facts()

    @property
    def progress(self) -> Progress:
        return Progress(**{name: getattr(self, name) for name in Progress.__dataclass_fields__})

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> RunState:
        """Build a RunState from facts.json; raise CheckpointError if a field is missing or invalid."""
        # earlier checkpoints do not have these
        facts = {"skipped_in_a_row": 0, "info_names": [], **facts}
        if missing := cls.__dataclass_fields__.keys() - facts.keys():  # the defaults are for new runs only
            raise CheckpointError(f"{min(missing)} is missing in facts.json")
        try:
            return _SCHEMA.validate_python(dict(facts))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise CheckpointError(f"{field} is {str(first['input'])[:80]!r} in facts.json, which is invalid") from None


_SCHEMA = TypeAdapter(RunState)
