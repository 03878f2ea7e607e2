"""Every check catches the mutants that are there for it, and passes the policy they were made from."""

from pathlib import Path

import pytest

from audit.mutants import MUTANTS, ReferencePolicy
from audit.mutants.matrix import as_key, as_markdown, audit_mutants
from holdfast.audit import CHECKS, Verdict, audit
from holdfast.audit.known_bugs import KEY

PAGE = Path(__file__).parents[2] / "docs" / "audit-matrix.md"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_check_catches_its_mutant(mutant):
    (finding,) = audit(mutant.kind(), checks=[mutant.check]).findings
    assert finding.verdict == Verdict.FAIL
    assert finding.evidence
    assert finding.where


def test_no_check_is_without_a_mutant():
    assert {mutant.check for mutant in MUTANTS} == {check.name for check in CHECKS}


def test_there_are_enough_of_them():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


@pytest.mark.parametrize("seed", range(5))
def test_every_check_passes_the_sound_policy(seed):
    report = audit(ReferencePolicy(seed), seed=seed)
    assert [f.check.name for f in report.findings if f.verdict != Verdict.PASS] == []


@pytest.mark.slow
def test_the_matrix_in_the_docs_and_the_key_are_true():
    """`make audit-matrix` writes both."""
    reports = audit_mutants()
    assert as_markdown(reports) in PAGE.read_text(encoding="utf-8")
    assert as_key(reports) == KEY.read_text(encoding="utf-8")
