"""Policies: one contract, the plain PyTorch family and its parts."""

from holdfast.policies.actions import Sampling
from holdfast.policies.lstm_wrapper import LSTMWrapper
from holdfast.policies.plain.box import BoxPolicy
from holdfast.policies.plain.fast import Fast
from holdfast.policies.policy import Policy
from holdfast.policies.registry import PY_AGENTS, make_policy

__all__ = ["PY_AGENTS", "BoxPolicy", "Fast", "LSTMWrapper", "Policy", "Sampling", "make_policy"]
