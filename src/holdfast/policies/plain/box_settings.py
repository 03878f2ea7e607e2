"""Settings of `BoxPolicy`. Not in box.py, so that settings can be read without importing torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holdfast.config.registry import POLICIES
from holdfast.config.sections import PolicySection

Widths = list[Annotated[int, Field(ge=1, le=8192)]]


@POLICIES.register("box")
class BoxPolicySettings(PolicySection):
    py_agent: Literal["box"] = Field(default="box", description="agent for vectors, images and symbols")
    encoder: Widths = Field(default=[64, 64], description="layer widths of the MLP encoder")
    heads: Widths = Field(default=[64], description="hidden layer widths of the actor and of the critic")
    normalize_obs: bool = Field(default=True, description="normalize observations by their running mean and variance")
    log_std: float = Field(
        default=0.0, ge=-5.0, le=2.0, description="initial log standard deviation of continuous actions"
    )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return ("box",)
