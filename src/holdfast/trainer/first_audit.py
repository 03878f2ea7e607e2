"""Audit a policy for state bugs before training it, with the quick checks only."""

from __future__ import annotations

import logging
from typing import Any

from holdfast.audit import UnusableError, audit, describe_failures, subject_from_settings
from holdfast.audit.known_bugs import describe_bugs
from holdfast.config.settings import Settings
from holdfast.errors import SettingsError
from holdfast.policies import OwnPolicySettings

logger = logging.getLogger(__name__)


def audit_first(settings: Settings, graph: Any) -> None:
    """Audit the policy unless settings.audit skips it; if a check fails, raise SettingsError, or warn if audit=warn."""
    agent = settings.policy.agent_word
    ours = not isinstance(settings.policy, OwnPolicySettings) and not settings.policy.is_graph_file
    if settings.audit == "off" or (settings.audit == "auto" and ours):
        return
    try:
        report = audit(subject_from_settings(settings, graph), quick=True, seed=settings.seed)
    except UnusableError as error:
        message = f"audit: {agent} cannot be audited: {error}"
        if settings.audit == "warn":
            logger.warning(message)
            return
        raise SettingsError(f"{message}\nTo train this policy without an audit, use audit=off.") from error
    if report.sound:
        counts = report.counts()
        not_run = f", {counts['not run']} could not run" if counts["not run"] else ""
        passed = f"{counts['pass']} quick checks passed{not_run} in {report.seconds:.0f} s"
        logger.info("audit: %s: %s; `holdfast audit` runs all checks", agent, passed)
    elif settings.audit == "warn":
        logger.warning("audit: %s", describe_failures(report))
    else:
        failure, num_others = report.failures[0], len(report.failures) - 1
        others = f" (and {num_others} more)" if num_others else ""
        what = f"audit: {agent} fails {failure.check.name}{others}: {failure.evidence}."
        next_step = "Run `holdfast audit` with the same settings for details, or use audit=warn to train anyway."
        lines = (what, failure.check.fix, describe_bugs(report.known_bugs), next_step)
        raise SettingsError("\n".join(filter(None, lines)))
