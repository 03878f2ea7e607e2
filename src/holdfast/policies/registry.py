"""Agents by name. A file or a command may only name what is listed here."""

from __future__ import annotations

from typing import Any

from holdfast.config.settings import PolicySettings
from holdfast.policies.lstm_wrapper import LSTMWrapper
from holdfast.policies.plain.box import BoxPolicy
from holdfast.policies.plain.fast import Fast
from holdfast.spec import WorldSpec

PY_AGENTS: dict[str, type[LSTMWrapper]] = {"fast": Fast, "box": BoxPolicy}


def make_policy(settings: PolicySettings, spec: WorldSpec) -> LSTMWrapper:
    """The policy the settings describe, for this world. Weights come from torch's generator."""
    options: dict[str, Any] = settings.model_dump(exclude={"py_agent", "hidden", "layers", "compile"})
    if settings.hidden is not None:
        options["hidden_size"] = settings.hidden
    if settings.layers is not None:
        options["num_layers"] = settings.layers
    policy = PY_AGENTS[settings.py_agent](spec, **options)
    if settings.compile:
        policy.compile_around_recurrence()
    return policy
