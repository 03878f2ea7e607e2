"""Every check catches the mutants that are there for it, and passes the policy they were made from."""

import pytest

from audit.mutants import MUTANTS, ReferencePolicy
from audit.mutants.matrix import PAGE, as_entry, as_key, as_row, as_table
from holdfast.audit import CHECKS, Verdict, audit
from holdfast.audit.known_bugs import KEY


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
@pytest.mark.parametrize("number", range(len(MUTANTS)), ids=[mutant.name for mutant in MUTANTS])
def test_the_matrix_in_the_docs_and_the_key_are_current(number):
    """`make audit-matrix` writes both."""
    mutant = MUTANTS[number]
    report = audit(mutant.kind())
    assert as_row(mutant, report) == rows_of_page()[number]
    assert as_entry(mutant, report) == entries_of_key()[number]


def test_the_matrix_and_the_key_have_one_line_per_mutant():
    assert PAGE.read_text(encoding="utf-8").endswith(as_table(rows_of_page()))
    assert KEY.read_text(encoding="utf-8") == as_key(entries_of_key())
    assert len(rows_of_page()) == len(entries_of_key()) == len(MUTANTS)


def rows_of_page() -> list[str]:
    return [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]


def entries_of_key() -> list[str]:
    return [line.removesuffix(",") for line in KEY.read_text(encoding="utf-8").splitlines()[1:-1]]
