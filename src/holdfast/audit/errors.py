"""Errors of an audit, and whether the policy or the auditor raised them."""

from __future__ import annotations

import traceback
from pathlib import Path

from holdfast.errors import SettingsError


class UnusableError(SettingsError):
    """The subject cannot be audited: it raises, or returns something of the wrong type or shape."""


class PolicyRaisedError(UnusableError):
    """The policy raised; the message, written by an adapter, lists the arguments of the call."""


def raised_by_auditor(error: BaseException) -> bool:
    """Whether the auditor's own code raised this, adapters aside: then it says nothing about the policy."""
    last = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    return last.is_relative_to(Path(__file__).parent) and last.parent.name != "adapters"
