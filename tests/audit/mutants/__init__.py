"""Deliberately broken policies, at least one for each check of the auditor, and the correct policy they are made from."""

from audit.mutants import (
    diagnosed,
    episodes,
    experiments,
    gradients,
    learning,
    overlooked,
    sequences,
    slots,
    stored_memory,
)
from audit.mutants.reference_policy import ReferencePolicy
from audit.mutants.register import MUTANTS, Mutant

__all__ = [
    "MUTANTS",
    "Mutant",
    "ReferencePolicy",
    "diagnosed",
    "episodes",
    "experiments",
    "gradients",
    "learning",
    "overlooked",
    "sequences",
    "slots",
    "stored_memory",
]
