"""What an auditor could overlook: policies that end the process, are too quiet, write into what they get, or say what is not so."""

import sys
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.audit import Subject, UnusableError, Verdict, assert_sound, audit
from holdfast.audit.adapters import StepFunction
from holdfast.audit.mutants import Sound
from holdfast.audit.mutants.episodes import NeverResets
from holdfast.audit.mutants.slots import StartsOneLayer
from holdfast.audit.mutants.time import ResetsAfterTheStep
from holdfast.errors import SettingsError


def only(subject, check, **options):
    (finding,) = audit(subject, checks=[check], **options).findings
    return finding


def test_ending_the_process_is_no_way_to_pass():
    class Leaves(Sound):
        def step(self, obs, state, first):
            sys.exit(0)

    class LeavesInACheck(Sound):
        def reset_memory(self):
            sys.exit(0)

    with pytest.raises(UnusableError, match="Leaves cannot be run: SystemExit"):
        audit(Leaves())
    finding = only(LeavesInACheck(), "a_reset_memory_is_blank")
    assert finding.verdict == Verdict.FAIL
    assert "it raised SystemExit" in finding.evidence


def test_a_policy_too_quiet_to_be_heard_is_not_called_sound():
    never_reset = torch.randn(3, 3)

    def whisper(size):
        def step(obs, state, first):
            h = torch.tanh(obs + state[0][0] @ never_reset)
            return {"logits": size * h}, (h.unsqueeze(0),)

        return StepFunction(step, lambda B: (torch.zeros(1, B, 3),), obs_shape=(3,))

    with pytest.raises(UnusableError, match=r"an observation moves no output by more than .* Set `module`"):
        audit(whisper(1e-6))
    assert "That is little still" in audit(whisper(1e-3)).note
    assert audit(whisper(1.0)).note == ""


def test_no_checks_are_no_audit():
    with pytest.raises(SettingsError, match="no check is named"):
        assert_sound(NeverResets(), checks=[])


def test_a_check_named_twice_runs_once():
    assert len(audit(Sound(), checks=["reset_inside", "reset_inside"]).findings) == 1


def test_what_one_test_declares_excuses_nothing_in_the_next():
    subject = NeverResets()
    assert_sound(subject, checks=["reset_inside"], declared=["lifetime_memory"])
    with pytest.raises(AssertionError, match="reset_inside"):
        assert_sound(subject, checks=["reset_inside"])


def test_a_start_state_that_is_used_wrongly_is_not_excused_as_unused():
    finding = only(StartsOneLayer(), "layers_are_in_place", declared=["zero_start_states"])
    assert finding.verdict == Verdict.FAIL


@pytest.mark.parametrize("kept", [lambda x: x.sum().item(), lambda x: np.zeros(4), lambda x: x])
def test_whatever_grows_is_seen_with_and_without_memory_of_its_own(kept):
    class Hoards(Sound):
        def __init__(self, seed=0):
            super().__init__(seed)
            self.history = []

        def step(self, obs, state, first):
            self.history.append(kept(obs))
            return super().step(obs, state, first)

    class HoardsWithoutMemory(Hoards):
        act = Subject.act

    for kind in (Hoards, HoardsWithoutMemory):
        assert only(kind(), "memory_is_bounded").verdict == Verdict.FAIL


def test_a_window_that_is_bounded_does_not_grow():
    class Remembers(Sound):
        def __init__(self, seed=0):
            super().__init__(seed)
            self.last = deque(maxlen=100)

        def step(self, obs, state, first):
            self.last.append(1.0)
            return super().step(obs, state, first)

    assert only(Remembers(), "memory_is_bounded").verdict == Verdict.PASS


def test_nonsense_for_integer_flags_is_no_refusal():
    class Nan(Sound):
        def step(self, obs, state, first):
            outputs, state = super().step(obs, state, first)
            return {**outputs, "value": outputs["value"] * (1.0 if first.dtype == torch.bool else float("nan"))}, state

    class Refuses(Sound):
        def step(self, obs, state, first):
            if first.dtype == torch.float32:
                raise TypeError("flags are whole")
            return super().step(obs, state, first)

    assert only(Nan(), "integer_flags").verdict == Verdict.FAIL
    finding = only(Refuses(), "integer_flags")
    assert finding.verdict == Verdict.PASS
    assert "float32 flags are refused in stepping: TypeError" in finding.evidence


def test_a_policy_that_writes_into_what_it_is_given_fails_that_check_and_no_dozen_others():
    class WritesInPlace(Sound):
        def step(self, obs, state, first):
            outputs, after = super().step(obs, state, first)
            for leaf, new in zip(state, after, strict=True):
                leaf.copy_(new.detach())
            return outputs, after

    failed = [finding.check.name for finding in audit(WritesInPlace()).failures]
    assert failed[0] == "start_states_are_not_changed"
    assert len(failed) <= 3


def test_entropy_is_compared_with_that_of_acting():
    class Doubles(Sound):
        def step(self, obs, state, first):
            outputs, state = super().step(obs, state, first)
            return {**outputs, "entropy": 2 * outputs["entropy"]}, state

    assert "away from that of acting" in only(Doubles(), "entropy_is_that_of_the_policy").evidence


def test_weights_that_are_computed_in_every_call_are_no_memory():
    class Normed(Sound):
        def network(self):
            network = super().network()
            nn.utils.spectral_norm(nn.utils.weight_norm(network.encoder), "weight_v")
            return network

    with pytest.warns(FutureWarning):
        subject = Normed()
    assert only(subject, "memory_has_no_graph").verdict == Verdict.PASS


def test_a_memory_that_takes_in_cues_only_remembers_some_openings_and_that_is_enough():
    assert only(ResetsAfterTheStep(), "first_observations_are_remembered").verdict == Verdict.FAIL

    class Latch(Sound):
        """Writes where the first number of an observation is large."""

        def advance(self, x, state, first):
            kept = self.reset(state, first)
            y, after = self.cell(x, kept)
            written = (x[..., :1] > 0).float()
            return y, tuple(written * new + (1 - written) * old for new, old in zip(after, kept, strict=True))

    seen = [only(Latch(seed), "first_observations_are_remembered", seed=seed).verdict for seed in range(3)]
    assert seen == [Verdict.PASS] * 3


def test_what_was_looked_at_is_judged_even_if_the_rest_is_not_offered():
    class NoScore(NeverResets):
        score = Subject.score

    class NoScoreButSound(Sound):
        score = Subject.score

    assert only(NoScore(), "reset_on_terminated").verdict == Verdict.FAIL
    finding = only(NoScoreButSound(), "reset_on_terminated")
    assert finding.verdict == Verdict.PASS
    assert "only acting was looked at" in finding.evidence


def test_an_audit_leaves_the_memory_of_a_policy_alone():
    subject = Sound()
    memory = torch.ones(2, 3, 6), torch.full((2, 3, 6), 2.0)
    subject.set_memory(memory)
    audit(subject)
    for is_now, was in zip(subject.get_memory(), memory, strict=True):
        assert torch.equal(is_now, was)


class OtherNamesLater(Sound):
    def step(self, obs, state, first):
        outputs, state = super().step(obs, state, first)
        return (outputs | {"extra": outputs["value"]} if first.any() else outputs), state


class MemoryIsADict(Sound):
    def get_memory(self):
        return {"h": self.memory[0]}


class SequenceHandsBackATensor(Sound):
    def sequence(self, obs, state, first, actions):
        outputs, state = super().sequence(obs, state, first, actions)
        return outputs, state[0]


class ObservesArrays(Sound):
    def observations(self, N, generator):
        return np.zeros((N, 5))


class SeesOneThing(Sound):
    def observations(self, N, generator):
        return torch.zeros(N, 5)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (MemoryIsADict, "get_memory gave a state of type dict"),
        (SequenceHandsBackATensor, "sequence gave a state of type Tensor"),
        (ObservesArrays, "observations gave ndarray: a tensor"),
        (SeesOneThing, r"observations\(48\) are all alike"),
    ],
)
def test_what_is_malformed_is_said_in_a_line(kind, said):
    with pytest.raises(UnusableError, match=said):
        audit(kind())


def test_outputs_that_come_and_go_are_a_finding():
    finding = only(OtherNamesLater(), "slots_are_apart")
    assert finding.verdict == Verdict.FAIL
    assert "names have to be the same at every step" in finding.evidence


def test_what_begins_after_many_steps_is_seen():
    class WipesAtForty(Sound):
        """Its window of forty steps runs over while it learns."""

        def sequence(self, obs, state, first, actions):
            wiped = first.clone()
            wiped[40:41] = True
            return super().sequence(obs, state, wiped, actions)

    assert only(WipesAtForty(), "steps_equal_a_sequence").verdict == Verdict.FAIL


def test_both_parts_of_complex_numbers_count():
    class Turns(Subject):
        """A linear recurrence whose state turns in the complex plane. Learning hands it back conjugated, if it is told to."""

        name, module = "turns", nn.Linear(3, 3)

        def __init__(self, conjugated):
            self.conjugated = conjugated

        def observations(self, N, generator):
            return torch.randn(N, 3, generator=generator)

        def initial_state(self, B):
            return (torch.zeros(1, B, 3, dtype=torch.complex64),)

        def step(self, obs, state, first):
            h = state[0][0] * (first == 0)[:, None] * 0.8j + torch.tanh(self.module(obs))
            return {"logits": h.real + h.imag}, (h.unsqueeze(0),)

        def sequence(self, obs, state, first, actions):
            logits = []
            for x, now in zip(obs, first, strict=True):
                outputs, state = self.step(x, state, now)
                logits.append(outputs["logits"])
            return {"logits": torch.stack(logits)}, tuple(x.conj() for x in state) if self.conjugated else state

    assert audit(Turns(conjugated=False)).sound
    assert [finding.check.name for finding in audit(Turns(conjugated=True)).failures] == ["the_final_state_is_right"]


def test_flags_that_are_always_boolean_can_be_declared():
    class NeedsBooleans(Sound):
        def reset(self, state, first):
            return tuple(leaf * ~first[None, :, None] for leaf in state)

    finding = only(NeedsBooleans(), "integer_flags")
    assert finding.verdict == Verdict.FAIL
    assert "--declare boolean_flags" in finding.check.mend
    assert only(NeedsBooleans(), "integer_flags", declared="boolean_flags").verdict == Verdict.DECLARED


def test_the_place_to_look_at_is_the_policys_own():
    class StepsOnly(NeverResets):
        act, get_memory, set_memory = Subject.act, Subject.get_memory, Subject.set_memory

    assert "test_no_silent_pass" not in only(StepsOnly(), "reset_inside").where  # NeverResets inherits both methods
    assert all("audit/subject.py" not in finding.where for finding in audit(StepsOnly()).failures)
