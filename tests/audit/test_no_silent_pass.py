"""What an auditor could overlook: policies that end the process, are too quiet, write into what they get, or say what is not so."""

import re
import sys
from collections import deque
from functools import partial

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


HISTORY = []


def keeps_globally(obs, state, first):
    HISTORY.append(1)
    return {"logits": obs + state[0][0] * (first == 0)[:, None]}, (obs.unsqueeze(0),)


class Plain:
    """An object that is no module, and keeps what it saw."""

    def __init__(self):
        self.history = []

    def step(self, obs, state, first):
        self.history.append(1)
        return {"logits": obs + state[0][0] * (first == 0)[:, None]}, (obs.unsqueeze(0),)


def keeping_in_a_closure():
    history = []

    def step(obs, state, first):
        history.append(1)
        return {"logits": obs + state[0][0] * (first == 0)[:, None]}, (obs.unsqueeze(0),)

    return step


@pytest.mark.parametrize(
    "step", [keeps_globally, Plain().step, keeping_in_a_closure(), partial(keeping_in_a_closure())]
)
def test_whatever_a_function_can_get_at_is_seen_to_grow(step):
    subject = StepFunction(step, lambda B: (torch.zeros(1, B, 3),), obs_shape=(3,))
    assert only(subject, "memory_is_bounded").verdict == Verdict.FAIL


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
            if first.dtype in (torch.uint8, torch.float32):
                raise TypeError("flags are boolean")
            return super().step(obs, state, first)

    assert only(Nan(), "integer_flags").verdict == Verdict.FAIL
    assert only(Nan(), "integer_flags", declared="boolean_flags").verdict == Verdict.DECLARED
    finding = only(Refuses(), "integer_flags")
    assert finding.verdict == Verdict.PASS
    assert (
        "uint8 flags are refused in stepping: TypeError, float32 flags are refused in stepping: TypeError"
        in finding.evidence
    )


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

    for seed in range(3):
        assert audit(Latch(seed), seed=seed).failures == []


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


def test_a_memory_that_did_not_exist_before_an_audit_is_blank_after_it():
    class StartsWithNone(Sound):
        memory = ()

        def get_memory(self):
            return super().get_memory() if self.acted else ()

        def act(self, obs, terminated, truncated, slots):
            self.acted = True
            return super().act(obs, terminated, truncated, slots)

        def set_memory(self, memory):
            self.acted = True
            super().set_memory(memory)

    subject = StartsWithNone()
    subject.acted = False
    audit(subject, checks=["slots_are_apart"])
    assert not any(leaf.any() for leaf in subject.get_memory())


class OtherNamesLater(Sound):
    def step(self, obs, state, first):
        outputs, state = super().step(obs, state, first)
        return (outputs | {"extra": outputs["value"]} if first.any() else outputs), state


class MemoryIsADict(Sound):
    def get_memory(self):
        return {"h": self.memory[0]}


class StateIsNested(Sound):
    def initial_state(self, B):
        h, c = super().initial_state(B)
        return (h,), (c,)


class HandsBackNoState(Sound):
    def step(self, obs, state, first):
        return super().step(obs, state, first)[0]


class PutsOutAFloat(Sound):
    def step(self, obs, state, first):
        outputs, state = super().step(obs, state, first)
        return outputs | {"temperature": 1.0}, state


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
        (StateIsNested, "initial_state: entry 0 of the state is a tuple: a flat tuple of tensors"),
        (HandsBackNoState, r"step gave dict: outputs and a state are needed, \(outputs, state\)"),
        (PutsOutAFloat, "a step gave temperature of type float: a tensor is needed"),
        (ObservesArrays, "observations gave ndarray: a tensor"),
        (SeesOneThing, r"observations\(48\) are all alike"),
    ],
)
def test_what_is_malformed_is_said_in_a_line(kind, said):
    with pytest.raises(UnusableError, match=said):
        audit(kind())


def test_learning_that_names_its_outputs_otherwise_is_not_called_sound():
    class Misspelt(Sound):
        def sequence(self, obs, state, first, actions):
            outputs, final = super().sequence(obs, state, first, actions)
            return {f"{name}s": y for name, y in outputs.items()}, final

    class HalfMisspelt(Misspelt):
        def sequence(self, obs, state, first, actions):
            outputs, final = super().sequence(obs, state, first, actions)
            return outputs | {"value": outputs["values"]}, final

    with pytest.raises(UnusableError, match="give the same things the same names"):
        audit(Misspelt())
    remarks = audit(HalfMisspelt(), checks=["values_replay"]).remarks
    assert "Learning does not put out log_prob, entropy, full_log_probs: not compared with acting." in remarks


def test_outputs_that_never_change_cannot_be_audited():
    class Constant(Sound):
        def heads(self, y):
            return super().heads(0 * y)

    with pytest.raises(UnusableError, match="do not change with what it observes"):
        audit(Constant())


def test_a_state_is_read_by_the_names_of_a_dict_whatever_their_order():
    cell = nn.LSTMCell(3, 4)

    def step(obs, state, first):
        kept = (first == 0).float()[:, None]
        h, c = cell(obs, (state["h"][0] * kept, state["c"][0] * kept))
        return {"logits": h}, {"c": c[None], "h": h[None]}

    def other_names(obs, state, first):
        outputs, state = step(obs, state, first)
        return outputs, {"h": state["h"], "cell": state["c"]}

    def subject(code):
        return StepFunction(
            code, lambda B: {"h": torch.zeros(1, B, 4), "c": torch.zeros(1, B, 4)}, obs_shape=(3,), module=cell
        )

    assert audit(subject(step)).sound
    with pytest.raises(UnusableError, match="a state has h, c, and another one h, cell"):
        audit(subject(other_names))


def test_a_value_that_writes_into_the_state_is_found_out():
    class Writes(Sound):
        def value(self, obs, state, first):
            outputs, after = self.step(obs, state, first)
            for leaf, new in zip(state, after, strict=True):
                leaf.copy_(new)
            return {"value": outputs["value"]}

    failures = [finding.check.name for finding in audit(Writes()).failures]
    assert failures == ["start_states_are_not_changed"]


def test_outputs_that_come_and_go_are_a_finding():
    finding = only(OtherNamesLater(), "slots_are_apart")
    assert finding.verdict == Verdict.FAIL
    assert "names have to be the same at every step" in finding.evidence


class OtherShapesLater(Sound):
    def step(self, obs, state, first):
        outputs, state = super().step(obs, state, first)
        return (outputs | {"value": outputs["value"].unsqueeze(-1)} if first.any() else outputs), state


class EntropyOfAnotherShape(Sound):
    def scores(self, log_probs, value, actions):
        scores = super().scores(log_probs, value, actions)
        return scores | {"entropy": scores["entropy"].unsqueeze(-1)}


class ScoresATensor(Sound):
    def score(self, obs, terminated, truncated, state, actions):
        return super().score(obs, terminated, truncated, state, actions)["value"]


class RebuildsWithoutAModule(Sound):
    def rebuild(self):
        other = super().rebuild()
        other.module = None
        return other


@pytest.mark.parametrize(
    ("kind", "check", "said"),
    [
        (OtherShapesLater, "slots_are_apart", r"a step gave value of shape \[4, 1\], and another one of \[4\]"),
        (EntropyOfAnotherShape, "entropy_is_that_of_the_policy", r"output entropy is .* they have to agree"),
        (ScoresATensor, "scoring_equals_a_sequence", "sequence gave outputs of type Tensor"),
        (RebuildsWithoutAModule, "weights_load_with_other_slots", "rebuild gave a subject without module"),
    ],
)
def test_what_turns_out_malformed_later_is_a_finding(kind, check, said):
    finding = only(kind(), check)
    assert finding.verdict == Verdict.FAIL
    assert re.search(said, finding.evidence)


class WipesAtForty(Sound):
    """Its window of forty steps runs over while it learns."""

    def sequence(self, obs, state, first, actions):
        wiped = first.clone()
        wiped[40:41] = True
        return super().sequence(obs, state, wiped, actions)


class WhispersAndWipes(WipesAtForty):
    """Loud enough to be heard, too quiet for a limit that is meant for others."""

    def heads(self, y):
        log_probs, value = super().heads(y)
        return log_probs, 0.02 * value

    def scores(self, log_probs, value, actions):
        return {"value": value}


@pytest.mark.parametrize("kind", [WipesAtForty, WhispersAndWipes])
def test_what_begins_after_many_steps_is_seen(kind):
    assert only(kind(), "steps_equal_a_sequence").verdict == Verdict.FAIL


def test_a_policy_that_blows_up_rounding_is_not_accused_of_it():
    class Wild(Sound):
        """A chaotic memory: differences double at every step. Learning rounds otherwise than acting."""

        def cell(self, x, state):
            h = (1 - 1.9 * state[0] ** 2 + 0.01 * x).clamp(-1, 1)
            return h[0], (h, state[1])

        def sequence(self, obs, state, first, actions):
            return super().sequence(obs, tuple(leaf + 1e-8 for leaf in state), first, actions)

    finding = only(Wild(), "steps_equal_a_sequence")
    assert finding.verdict == Verdict.PASS
    assert "70 steps could not be compared: rounding alone grows to" in finding.evidence


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

    assert "mutants/sound.py:" in only(StepsOnly(), "reset_inside").where  # NeverResets inherits both methods
    assert all("audit/subject.py" not in finding.where for finding in audit(StepsOnly()).failures)


def test_adapters_that_cast_flags_say_so():
    class Cast(Sound):
        flags_are_cast = "flags are handed over as floats"

    finding = only(Cast(), "integer_flags")
    assert finding.verdict == Verdict.NOT_RUN
    assert finding.evidence == "flags are handed over as floats"


def test_frozen_weights_need_no_gradient():
    class Frozen(Sound):
        def network(self):
            network = super().network()
            network.encoder.requires_grad_(False)
            return network

    class SeesCodes(Sound):
        """Whole numbers, so only weights can say that the encoder is cut off."""

        def observations(self, N, generator):
            return torch.randint(5, (N,), generator=generator)

        def encode(self, obs):
            return super().encode(nn.functional.one_hot(obs, 5).float())

    class CutOff(SeesCodes):
        def encode(self, obs):
            return super().encode(obs).detach()

    assert only(Frozen(), "learning_has_gradients").verdict == Verdict.PASS
    assert only(SeesCodes(), "learning_has_gradients").verdict == Verdict.PASS
    assert "log_prob moves with encoder.weight, encoder.bias" in only(CutOff(), "learning_has_gradients").evidence


def test_scoring_without_a_graph_is_no_scoring():
    class ScoresUnderNoGrad(Sound):
        def score(self, obs, terminated, truncated, state, actions):
            with torch.no_grad():
                return super().score(obs, terminated, truncated, state, actions)

    assert (
        "gradients by the start state are 1 of the largest"
        in only(ScoresUnderNoGrad(), "scoring_equals_a_sequence").evidence
    )
