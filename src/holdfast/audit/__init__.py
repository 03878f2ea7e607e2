"""The auditor: finds state bugs in anyone's recurrent policy, before any training."""

from holdfast.audit.audit import Report, audit
from holdfast.audit.checks import CHECKS
from holdfast.audit.failing import UnusableError
from holdfast.audit.findings import Check, Finding, Verdict
from holdfast.audit.sound import assert_sound, failures_in_words
from holdfast.audit.subject import DEVIATIONS, NotOfferedError, Outputs, State, Subject
from holdfast.audit.target import subject_of

__all__ = [
    "CHECKS",
    "DEVIATIONS",
    "Check",
    "Finding",
    "NotOfferedError",
    "Outputs",
    "Report",
    "State",
    "Subject",
    "UnusableError",
    "Verdict",
    "assert_sound",
    "audit",
    "failures_in_words",
    "subject_of",
]
