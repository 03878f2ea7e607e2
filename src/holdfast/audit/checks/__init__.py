"""The checks, one function each, grouped by subject."""

from holdfast.audit.checks import (
    calls,
    episodes,
    gradients,
    memory_use,
    parameters,
    sequences,
    slots,
    stored_memory,
    value_calls,
    weights,
)
from holdfast.audit.findings import Check

CHECKS: tuple[Check, ...] = (
    *episodes.CHECKS,
    *slots.CHECKS,
    *memory_use.CHECKS,
    *sequences.CHECKS,
    *gradients.CHECKS,
    *parameters.CHECKS,
    *calls.CHECKS,
    *weights.CHECKS,
    *stored_memory.CHECKS,
    *value_calls.CHECKS,
)

__all__ = ["CHECKS"]
