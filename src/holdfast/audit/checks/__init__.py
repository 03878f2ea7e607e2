"""All checks of the auditor. Each check is a function, and each module holds the checks on one topic."""

from holdfast.audit.checks import calls, episodes, gradients, memory_use, sequences, slots, stored_memory, weights
from holdfast.audit.findings import Check

MODULES = (episodes, slots, memory_use, sequences, gradients, calls, weights, stored_memory)
CHECKS: tuple[Check, ...] = tuple(check for module in MODULES for check in module.CHECKS)
