"""The checks: one function per promise, grouped by what they are about."""

from holdfast.audit.checks import episodes, gradients, learning, looking, memory, remembering, slots, time, weights
from holdfast.audit.findings import Check

CHECKS: tuple[Check, ...] = (
    *episodes.CHECKS,
    *slots.CHECKS,
    *remembering.CHECKS,
    *time.CHECKS,
    *gradients.CHECKS,
    *learning.CHECKS,
    *weights.CHECKS,
    *memory.CHECKS,
    *looking.CHECKS,
)

__all__ = ["CHECKS"]
