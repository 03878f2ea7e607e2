"""The auditor: finds state bugs in recurrent policies before any training."""

from holdfast.audit.assertions import assert_sound, describe_failures
from holdfast.audit.audit import Report, audit
from holdfast.audit.checks import CHECKS
from holdfast.audit.findings import Verdict
from holdfast.audit.subject import DEVIATIONS, NotOfferedError, Outputs, State, Subject, UnusableError
from holdfast.audit.target import subject_from_settings

__all__ = [
    "CHECKS",
    "DEVIATIONS",
    "NotOfferedError",
    "Outputs",
    "Report",
    "State",
    "Subject",
    "UnusableError",
    "Verdict",
    "assert_sound",
    "audit",
    "describe_failures",
    "subject_from_settings",
]
