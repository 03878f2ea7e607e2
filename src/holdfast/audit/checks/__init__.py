"""The checks, one function each, grouped by subject."""

from holdfast.audit.checks import calls, episodes, gradients, memory_use, sequences, slots, stored_memory, weights
from holdfast.audit.findings import Check

MODULES = (episodes, slots, memory_use, sequences, gradients, calls, weights, stored_memory)
CHECKS: tuple[Check, ...] = tuple(check for module in MODULES for check in module.CHECKS)
