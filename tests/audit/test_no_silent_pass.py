"""What an auditor could overlook: policies that end the process or are too quiet, and what was excused or not looked at."""

import inspect
import sys

import pytest
import torch

from audit.mutants import ReferencePolicy
from audit.mutants.episodes import NeverResets
from audit.mutants.learning import ScoringWritesMemory
from audit.mutants.slots import AllLayersStartFromLast
from holdfast.audit import Subject, UnusableError, Verdict, assert_sound, audit
from holdfast.audit.adapters import StepFunction
from holdfast.errors import SettingsError
from support.findings import only


def test_ending_the_process_is_no_way_to_pass():
    class Leaves(ReferencePolicy):
        def step(self, obs, state, first):
            sys.exit(0)

    class LeavesInACheck(ReferencePolicy):
        def reset_memory(self):
            sys.exit(0)

    with pytest.raises(UnusableError, match="Leaves cannot be run: SystemExit"):
        audit(Leaves())
    finding = only(LeavesInACheck(), "reset_memory_clears_everything")
    assert finding.verdict == Verdict.FAIL
    assert "the policy raised SystemExit" in finding.evidence


def test_a_policy_too_quiet_to_be_heard_is_not_called_sound():
    never_reset = torch.randn(3, 3)

    def whisper(size):
        def step(obs, state, first):
            h = torch.tanh(obs + state[0][0] @ never_reset)
            return {"logits": size * h}, (h.unsqueeze(0),)

        return StepFunction(step, lambda B: (torch.zeros(1, B, 3),), obs_shape=(3,))

    with pytest.raises(UnusableError, match=r"observations change no output by more than .* Set `module`"):
        audit(whisper(1e-6))
    assert "That is still little" in audit(whisper(1e-3)).note
    assert audit(whisper(1.0)).note == ""


def test_outputs_that_never_change_cannot_be_audited():
    class Constant(ReferencePolicy):
        def heads(self, y):
            return super().heads(0 * y)

    with pytest.raises(UnusableError, match="do not depend on observations"):
        audit(Constant())


def test_gradients_that_are_nowhere_are_not_said_to_be_kept_apart():
    class SeesCodes(ReferencePolicy):
        """Nothing has a gradient: observations are whole numbers, and the state is detached."""

        def observations(self, N, generator):
            return torch.randint(9, (N, 5), generator=generator)

        def encode(self, obs):
            return super().encode(obs.float())

        def reset(self, state, first):
            return tuple(leaf.detach() for leaf in super().reset(state, first))

    for check in ("gradients_stop_at_reset", "slot_gradients_are_independent"):
        finding = only(SeesCodes(), check)
        assert (finding.verdict, finding.evidence) == (Verdict.NOT_RUN, "there was nothing to measure")


def test_an_error_of_ours_that_a_policy_raises_is_a_finding_about_it():
    class RefusesOneSlot(ReferencePolicy):
        def step(self, obs, state, first):
            if len(obs) == 1:
                raise SettingsError("one slot is not enough")
            return super().step(obs, state, first)

    finding = only(RefusesOneSlot(), "reset_with_one_slot")
    assert finding.verdict == Verdict.FAIL
    assert "the policy raised SettingsError: one slot is not enough" in finding.evidence


def test_a_value_that_cannot_be_looked_up_is_a_finding():
    class HasABrokenValue(ReferencePolicy):
        def value(self, obs, state, first):
            raise KeyError("critic")

    assert "the policy raised KeyError" in only(HasABrokenValue(), "inputs_are_not_modified").evidence


def test_values_that_end_the_process_are_a_finding():
    class LeavesWhenAsked(ReferencePolicy):
        def value(self, obs, state, first):
            sys.exit(0)

    assert audit(LeavesWhenAsked(), checks=["reset_inside_sequence"]).sound
    assert "the policy raised SystemExit" in only(LeavesWhenAsked(), "inputs_are_not_modified").evidence


def test_gradients_through_a_drawn_action_do_not_stand_in_for_those_of_scoring():
    class DetachesWhatItScores(ReferencePolicy):
        """Real actions are drawn with a gradient; while learning, what they are scored by has none through the encoder."""

        def step(self, obs, state, first):
            y, state = self.advance(self.encode(obs), state, first)
            mean, value = self.heads(y)
            return self.scores(mean, value, torch.distributions.Normal(mean, 0.5).rsample()), state

        def sequence(self, obs, state, first, actions):
            with torch.no_grad():
                encoded = self.encode(obs)
            ys = []
            for x, now in zip(encoded, first, strict=True):
                y, state = self.advance(x, state, now)
                ys.append(y)
            return self.scores(*self.heads(torch.stack(ys)), actions), state  # pyright: ignore[reportArgumentType]

        def scores(self, log_probs, value, actions):
            log_prob = torch.distributions.Normal(log_probs, 0.5).log_prob(actions).sum(-1)
            return {"actions": actions, "log_prob": log_prob, "value": value}

    assert only(DetachesWhatItScores(), "learning_has_gradients").verdict == Verdict.FAIL


def test_noise_in_the_state_is_not_taken_for_a_remembered_action():
    class ShakesItsState(ReferencePolicy):
        """Real actions, and noise that enters the state after they were drawn."""

        sequence = Subject.sequence

        def step(self, obs, state, first):
            y, state = self.advance(self.encode(obs), state, first)
            mean, value = self.heads(y)
            actions = torch.normal(mean, 0.5)
            shaken = (state[0] + 0.1 * torch.randn(state[0].shape), state[1])
            return {"actions": actions, "mean": mean, "value": value}, shaken

    assert only(ShakesItsState(), "calls_are_repeatable").verdict == Verdict.FAIL


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_rounding_that_is_as_large_as_bugs_cannot_be_audited(kind):
    class Rounds(ReferencePolicy):
        def scores(self, log_probs, value, actions):
            return {name: y.to(kind) for name, y in super().scores(log_probs, value, actions).items()}

    with pytest.raises(UnusableError, match=f"the policy computes in {str(kind)[6:]}.*audit it in float32"):
        audit(Rounds())


def test_no_checks_are_no_audit():
    with pytest.raises(SettingsError, match="no checks given"):
        assert_sound(NeverResets(), checks=[])


def test_a_check_named_twice_runs_once():
    assert len(audit(ReferencePolicy(), checks=["reset_inside_sequence", "reset_inside_sequence"]).findings) == 1


def test_what_one_test_declares_excuses_nothing_in_the_next():
    subject = NeverResets()
    assert_sound(subject, checks=["reset_inside_sequence"], declared=["lifetime_memory"])
    with pytest.raises(AssertionError, match="reset_inside_sequence"):
        assert_sound(subject, checks=["reset_inside_sequence"])


def test_a_start_state_that_is_used_wrongly_is_not_excused_as_unused():
    finding = only(AllLayersStartFromLast(), "layers_are_not_mixed", declared=["zero_start_states"])
    assert finding.verdict == Verdict.FAIL


def test_what_was_looked_at_is_judged_even_if_the_rest_is_not_offered():
    class NoScore(NeverResets):
        score = Subject.score

    class NoScoreButSound(ReferencePolicy):
        score = Subject.score

    assert only(NoScore(), "reset_on_terminated").verdict == Verdict.FAIL
    finding = only(NoScoreButSound(), "reset_on_terminated")
    assert finding.verdict == Verdict.PASS
    assert "score was not checked" in finding.evidence


def test_the_place_to_look_at_is_the_policys_own():
    class StepsOnly(NeverResets):
        act, get_memory, set_memory = Subject.act, Subject.get_memory, Subject.set_memory

    assert (
        "mutants/reference_policy.py:" in only(StepsOnly(), "reset_inside_sequence").where
    )  # NeverResets inherits both methods
    scores = inspect.getsourcelines(ScoringWritesMemory.score)[1]
    assert only(ScoringWritesMemory(), "learning_does_not_write_memory").where.endswith(f"mutants/learning.py:{scores}")
    assert all("audit/subject.py" not in finding.where for finding in audit(StepsOnly()).failures)
