"""Errors meant for the user: the command line prints their text and nothing else."""


class HoldfastError(Exception):
    """Something outside Holdfast is wrong; the message says what, with which value, and what to do."""


class SettingsError(HoldfastError):
    """A setting, a name or a size the user gave cannot be used. Exit code 2, before anything exists on disk."""


class NonFiniteError(HoldfastError):
    """A world produced NaN or Inf. Names environment, slot and field."""
