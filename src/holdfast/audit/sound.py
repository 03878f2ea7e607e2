"""For people's own tests, and for training: is this policy sound?"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from holdfast.audit.adapters.contract import ContractPolicy
from holdfast.audit.audit import Report, audit
from holdfast.audit.findings import Verdict
from holdfast.audit.observe import observer
from holdfast.audit.subject import Subject
from holdfast.config import load_settings
from holdfast.config.settings import Settings
from holdfast.envs import describe
from holdfast.policies import MettaAgent, Policy


def subject_of(settings: Settings) -> ContractPolicy:
    """A fresh policy in its world, as training would begin with it."""
    spec = describe(settings.env)

    def make(seed: int) -> Policy:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return MettaAgent(settings.policy, spec).policy

    name = f"{settings.policy.agent_word} in {settings.env.name}"
    return ContractPolicy(make(settings.seed), observer(settings.env), name, lambda: make(settings.seed + 1))


def assert_sound(
    policy: Subject | str,
    *words: str,
    declared: Iterable[str] = (),
    checks: Iterable[str] | None = None,
    seed: int = 0,
) -> Report:
    """Fails with the findings if a check fails.

    policy: a Subject (an adapter around a policy of any kind), or a word as on the command line, followed by others:
    `assert_sound("py_agent=./mine.py:MyPolicy", "env=memory")`. checks: these only, and each of them has to be able to run.
    """
    subject = policy if isinstance(policy, Subject) else subject_of(load_settings([policy, *words, f"seed={seed}"]))
    subject.declared = subject.declared | frozenset(declared)
    report = audit(subject, checks, seed)
    if not report.sound:
        raise AssertionError(failures_in_words(report))
    not_run = [finding for finding in report.findings if finding.verdict == Verdict.NOT_RUN]
    if checks is not None and not_run:
        raise AssertionError(f"{report.name}: {not_run[0].check.name} could not run: {not_run[0].evidence}.")
    return report


def failures_in_words(report: Report) -> str:
    """One block per failed check: what was found, and how to mend it."""
    blocks = [f"{report.name} is not sound: {len(report.failures)} of {len(report.findings)} checks failed."]
    for finding in report.failures:
        where = f" Look at {finding.where}." if finding.where else ""
        blocks.append(f"{finding.check.name}: {finding.evidence}.\n  {finding.check.mend}{where}")
    return "\n".join(blocks)
