"""Every broken policy of examples/ is caught by the check that docs/bugs.md names, and what they are made of is sound."""

import re
import textwrap
from pathlib import Path

import pytest

from holdfast.audit import audit, subject_from_settings
from holdfast.config import load_settings
from holdfast.user_code import load_file

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "broken_policies.py"
PAGE = ROOT / "docs" / "bugs.md"
BUGS = load_file(str(ROOT / "proofs" / "bugs.py"), "bugs")
BROKEN = load_file(str(FILE), "test").BROKEN
NAMED = sorted({kind.caught_by for kind in BROKEN})


# What the auditor says that each is like; nothing is said of those that no mutant is close to.
KNOWN_AS = {
    "NoResets": "NeverResets",
    "LearningIgnoresResets": "LearningIgnoresResets",
    "ResetsAfterStep": "ResetsAfterStep",
    "ResetsOnlyH": "ResetsOnlyH",
    "FlagsAsIndices": "FlagsAsIndices",
    "ActingHasNoMemory": None,
    "StartsFromZeros": "StartsFromZeros",
    "StartsOneStepLate": "StartsOneStepLate",
    "MixesTimeAndSlots": "MixesTimeAndSlots",
    "DetachesEveryStep": "DetachesEveryStep",
    "ValueCallAdvancesMemory": "ValueCallAdvancesMemory",
    "ReshapesLayers": "ReshapesLayers",
    "SubtractsBatchMean": "SubtractsBatchMean",
    "NormaliserUpdatesInForward": "NormaliserUpdatesInForward",
}


def report_on(agent: str, checks: list[str] | None = None):
    return audit(subject_from_settings(load_settings([f"py_agent={agent}", "settings=quickstart"])), checks=checks)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_the_named_check_catches_it_and_it_is_known_again(kind):
    report = report_on(f"{FILE}:{kind.__name__}")
    assert kind.caught_by in [finding.check.name for finding in report.failures]
    like, expected = [bug.name for bug in report.known_bugs], KNOWN_AS[kind.__name__]
    assert expected in like if expected else not like
    (found,) = [finding for finding in report.failures if finding.check.name == kind.caught_by]
    begins, _, ends = BUGS.describe_audit(kind, report).partition(
        found.evidence
    )  # what is largest may turn on rounding
    section = PAGE.read_text().split(f"### {kind.__name__}\n")[1].split("\n### ")[0]
    assert begins in section
    assert ends in section


@pytest.mark.parametrize("agent", ["fast", f"{FILE}:StepByStep"], ids=["Fast", "StepByStep"])
def test_what_they_are_made_of_passes(agent):
    report = report_on(agent, NAMED)
    assert report.sound, report.failures


def test_the_page_shows_each_as_it_is():
    page, source = PAGE.read_text(), FILE.read_text()
    for kind in BROKEN:
        section = page.split(f"### {kind.__name__}\n")[1].split("\n### ")[0]
        (code,) = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
        assert textwrap.indent(code, "    ") in source
        assert f"`{kind.caught_by}`" in section
        assert f"](bugs/{kind.__name__}.svg)" in section
