"""Run one check of the auditor."""

from holdfast.audit import audit


def only(subject, check, **options):
    (finding,) = audit(subject, checks=[check], **options).findings
    return finding
