"""Deliberately broken policies: for every check at least one that it must catch, and one that every check must pass."""

from __future__ import annotations

from holdfast.audit.mutants.broken import MUTANTS, Mutant
from holdfast.audit.mutants.sound import Sound

__all__ = ["MUTANTS", "Mutant", "Sound"]
