"""What can go wrong with a subject in the middle of an audit, and whose fault it is."""

from __future__ import annotations

import traceback
from pathlib import Path

from holdfast.errors import SettingsError


class UnusableError(SettingsError):
    """The subject cannot be audited at all: it raises, or what it gives has the wrong shape."""


class PolicyRaisedError(UnusableError):
    """The policy raised, and an adapter says what it had been handed."""


def raised_by_the_auditor(error: BaseException) -> bool:
    """Raised by the auditor's own code: then it is no finding about the subject."""
    last = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    return last.is_relative_to(Path(__file__).parent) and last.parent.name not in ("adapters", "mutants")
