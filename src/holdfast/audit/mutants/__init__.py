"""Deliberately broken policies: for every check at least one that it must catch, and one that every check must pass."""

from holdfast.audit.mutants import episodes, gradients, learning, memory, slots, time
from holdfast.audit.mutants.register import MUTANTS, Mutant
from holdfast.audit.mutants.sound import Sound

__all__ = ["MUTANTS", "Mutant", "Sound", "episodes", "gradients", "learning", "memory", "slots", "time"]
