"""Policies: one contract, two families, and the parts they share."""

from holdfast.policies.actions import Sampling
from holdfast.policies.components import ComponentPolicy
from holdfast.policies.lstm_wrapper import LSTMWrapper
from holdfast.policies.metta_agent import MettaAgent, shared_name
from holdfast.policies.plain.box import BoxPolicy
from holdfast.policies.plain.fast import Fast
from holdfast.policies.policy import Policy
from holdfast.policies.registry import PY_AGENTS, make_policy

__all__ = [
    "PY_AGENTS",
    "BoxPolicy",
    "ComponentPolicy",
    "Fast",
    "LSTMWrapper",
    "MettaAgent",
    "Policy",
    "Sampling",
    "make_policy",
    "shared_name",
]
