"""Policies: the base class, the plain and component families, and the layers that both families share."""

from typing import TYPE_CHECKING

from holdfast.config.registry import lazy_exports

if TYPE_CHECKING:
    from holdfast.policies.actions import Sampling
    from holdfast.policies.components.component_policy import ComponentPolicy
    from holdfast.policies.lstm_wrapper import LSTMWrapper
    from holdfast.policies.metta_agent import MettaAgent, shared_name
    from holdfast.policies.plain.box import BoxPolicy
    from holdfast.policies.plain.fast import Fast
    from holdfast.policies.policy import Policy
    from holdfast.policies.registry import make_policy
    from holdfast.policies.settings import GRID_AGENTS, OwnPolicySettings

__all__ = [
    "GRID_AGENTS",
    "BoxPolicy",
    "ComponentPolicy",
    "Fast",
    "LSTMWrapper",
    "MettaAgent",
    "OwnPolicySettings",
    "Policy",
    "Sampling",
    "make_policy",
    "shared_name",
]

__getattr__ = lazy_exports(__name__)
