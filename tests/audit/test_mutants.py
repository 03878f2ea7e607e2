"""Every check catches the mutants that are there for it, and passes the policy they were made from."""

import re
from pathlib import Path

import pytest

from audit.mutants import MUTANTS, ReferencePolicy
from audit.mutants.families import PlainPolicy, SmallPolicy, in_contract
from audit.mutants.matrix import (
    EXPLANATIONS,
    PAGE,
    as_entry,
    as_explanation_row,
    as_explanations,
    as_key,
    as_row,
    as_table,
    explanation,
    names_cause,
)
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
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 130


@pytest.mark.parametrize("seed", range(5))
def test_every_check_passes_the_sound_policy(seed):
    report = audit(ReferencePolicy(seed), seed=seed)
    assert [f.check.name for f in report.findings if f.verdict != Verdict.PASS] == ["last_reward_stays_in_its_episode"]


@pytest.mark.parametrize("kind", [in_contract(SmallPolicy), PlainPolicy])
def test_no_check_fails_the_policies_that_other_mutants_are_made_from(kind):
    report = audit(kind())
    assert report.failures == []
    passed = {f.check.name for f in report.findings if f.verdict == Verdict.PASS}
    assert ("last_reward_stays_in_its_episode" in passed) == ("act" in report.calls)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(MUTANTS)), ids=[mutant.name for mutant in MUTANTS])
def test_the_matrix_in_the_docs_and_the_key_are_current(number):
    """`make audit-matrix` writes them."""
    mutant = MUTANTS[number]
    report = audit(mutant.kind())
    assert as_row(mutant, report) == rows_of(PAGE)[number]
    assert as_entry(mutant, report) == entries_of_key()[number]
    if mutant.explained:
        assert names_cause(mutant, report), explanation(report)
        shown = [row for row in rows_of(EXPLANATIONS) if row.startswith(f"| `{mutant.name}` |")]
        assert [without_numbers(row) for row in shown] == [without_numbers(as_explanation_row(mutant, report))]


def test_the_tables_and_the_key_have_one_line_per_mutant():
    assert PAGE.read_text(encoding="utf-8").endswith(as_table(rows_of(PAGE)))
    assert EXPLANATIONS.read_text(encoding="utf-8").endswith(as_explanations(rows_of(EXPLANATIONS)))
    assert KEY.read_text(encoding="utf-8") == as_key(entries_of_key())
    assert len(rows_of(PAGE)) == len(entries_of_key()) == len(MUTANTS)
    assert len(rows_of(EXPLANATIONS)) == sum(bool(mutant.explained) for mutant in MUTANTS)


def test_a_variant_names_a_mutant_that_exists():
    names = {mutant.name for mutant in MUTANTS if not mutant.same_as}
    assert {mutant.same_as for mutant in MUTANTS} <= names | {""}


def rows_of(page: Path) -> list[str]:
    return [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]


def entries_of_key() -> list[str]:
    return [line.removesuffix(",") for line in KEY.read_text(encoding="utf-8").splitlines()[1:-1]]


def without_numbers(row: str) -> str:
    """Measured numbers, and the place of the largest, may turn on rounding."""
    return re.sub(r"[\d.,+-]*\d(e[+-]\d+)?", "#", row)
