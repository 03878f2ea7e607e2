"""Flags of other types than boolean, and what an episode opens with."""

import torch

from audit.mutants import ReferencePolicy
from audit.mutants.sequences import ResetsAfterStep
from holdfast.audit import Verdict, audit
from support.findings import only


def test_nonsense_for_integer_flags_is_no_refusal():
    class Nan(ReferencePolicy):
        def step(self, obs, state, first):
            outputs, state = super().step(obs, state, first)
            return {**outputs, "value": outputs["value"] * (1.0 if first.dtype == torch.bool else float("nan"))}, state

    class Refuses(ReferencePolicy):
        def step(self, obs, state, first):
            if first.dtype in (torch.uint8, torch.float32):
                raise TypeError("flags are boolean")
            return super().step(obs, state, first)

    assert only(Nan(), "integer_flags").verdict == Verdict.FAIL
    assert only(Nan(), "integer_flags", declared="boolean_flags").verdict == Verdict.DECLARED
    finding = only(Refuses(), "integer_flags")
    assert finding.verdict == Verdict.PASS
    assert "step refuses uint8 flags: TypeError, step refuses float32 flags: TypeError" in finding.evidence


def test_flags_that_are_always_boolean_can_be_declared():
    class NeedsBooleans(ReferencePolicy):
        def reset(self, state, first):
            return tuple(leaf * ~first[None, :, None] for leaf in state)

    finding = only(NeedsBooleans(), "integer_flags")
    assert finding.verdict == Verdict.FAIL
    assert "--declare boolean_flags" in finding.check.fix
    assert only(NeedsBooleans(), "integer_flags", declared="boolean_flags").verdict == Verdict.DECLARED


def test_adapters_that_cast_flags_say_so():
    class Cast(ReferencePolicy):
        fixed_flag_dtype = "flags are handed over as floats"

    finding = only(Cast(), "integer_flags")
    assert finding.verdict == Verdict.NOT_RUN
    assert finding.evidence == "flags are handed over as floats"


def test_a_memory_that_takes_in_cues_only_remembers_some_openings_and_that_is_enough():
    assert only(ResetsAfterStep(), "first_observations_are_remembered").verdict == Verdict.FAIL

    class Latch(ReferencePolicy):
        """Writes where the first number of an observation is large."""

        def advance(self, x, state, first):
            kept = self.reset(state, first)
            y, after = self.cell(x, kept)
            written = (x[..., :1] > 0).float()
            return y, tuple(written * new + (1 - written) * old for new, old in zip(after, kept, strict=True))

    for seed in range(3):
        assert audit(Latch(seed), seed=seed).failures == []
