"""Failures are read by those of known bugs: the right one is named, or none."""

import pytest

from audit.mutants import MUTANTS, ReferencePolicy
from holdfast.audit import Subject, audit
from holdfast.audit.known_bugs import MAX_NAMED, known_bugs, overlap


@pytest.mark.parametrize(
    "name", ["LearningIgnoresResets", "ResetsOnlyH", "IgnoresTruncation", "MixesTimeAndSlots", "StartsFromZeros"]
)
def test_a_bug_is_known_again_with_other_weights_and_observations(name):
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == name)
    report = audit(mutant.kind(seed=3), seed=3)
    assert name in [bug.name for bug in report.known_bugs]
    assert len(report.known_bugs) <= MAX_NAMED
    assert report.failures[0].check.name in {bug.check for bug in report.known_bugs}


def test_a_sound_policy_is_like_no_bug():
    assert audit(ReferencePolicy()).known_bugs == []


def test_one_check_alone_tells_nothing():
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == "NeverResets")
    report = audit(mutant.kind(), checks=["reset_inside_sequence"])
    assert not report.sound
    assert report.known_bugs == []


def test_forms_that_a_policy_lacks_are_not_held_against_a_bug():
    class StepsOnly(ReferencePolicy):
        """h is cleared, c is not, and there is nothing but steps."""

        sequence, act, score, value_from_memory = (
            Subject.sequence,
            Subject.act,
            Subject.score,
            Subject.value_from_memory,
        )

        def reset(self, state, first):
            return super().reset(state, first)[0], state[1]

    report = audit(StepsOnly())
    assert report.calls == ("step",)
    assert "ResetsOnlyH" in [bug.name for bug in report.known_bugs]


def test_overlap():
    one, other = {("a", "step"): 1.0, ("b", "step"): 0.5}, {("a", "step"): 1.0}
    assert overlap(one, one) == 1.0
    assert overlap(one, other) == overlap(other, one) == pytest.approx(2 / 3)
    assert overlap(other, {("c", "step"): 1.0}) == 0.0
    assert overlap({}, {}) == 0.0


def test_the_key_holds_every_mutant():
    assert [bug.name for bug in known_bugs()] == [mutant.name for mutant in MUTANTS]
    for bug, mutant in zip(known_bugs(), MUTANTS, strict=True):
        assert (bug.what, bug.seen, bug.check, bug.needs) == (mutant.what, mutant.seen, mutant.check, mutant.needs)


def test_a_bug_that_a_policy_cannot_have_is_not_named():
    class OneLayer(ReferencePolicy):
        """c is cleared, h is not; of its one layer nothing else can be."""

        def initial_state(self, B):
            return tuple(leaf[:1] for leaf in super().initial_state(B))

        def cell(self, x, state):
            h, c = self.module.cells[0](x, (state[0][0], state[1][0]))
            return h, (h[None], c[None])

        def reset(self, state, first):
            return state[0], super().reset(state, first)[1]

    named = [bug.name for bug in audit(OneLayer()).known_bugs]
    assert "ResetsOnlyH" in named
    assert "ResetsTopLayerOnly" not in named
