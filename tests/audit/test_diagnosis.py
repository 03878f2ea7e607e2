"""The explanation shown first names the cause, in the user's words, or leaves the advice of the check."""

import re

import pytest
import torch
from torch import nn

from audit.mutants import ReferencePolicy
from audit.mutants.diagnosed import NaNAfterFortySteps, RaisesWithOneSlot
from audit.mutants.families import PlainPolicy, SmallPolicy, in_contract
from holdfast.audit import CHECKS, Verdict, audit
from holdfast.audit.adapters import StepFunction
from holdfast.audit.probe import Probe
from holdfast.audit.script import ACT, SEQUENCE, STEP
from holdfast.audit.subject import NotANumberError, PolicyRaisedError, UnusableError
from holdfast.policies import LSTMWrapper
from support.findings import only


class ResetsBy(PlainPolicy):
    """Learning uses these flags instead of those it is given."""

    def __init__(self, route):
        super().__init__()
        self.route = route

    def sequence(self, obs, state, first, actions):
        return super().sequence(obs, state, self.route(first != 0), actions)


@pytest.mark.parametrize(
    ("route", "cause"),
    [
        (lambda x: x.roll(1, 1), "the flag of a slot resets the next slot"),
        (lambda x: x.roll(-1, 1), "the flag of a slot resets the slot before it"),
        (lambda x: x[:, :1].expand_as(x), "the flags of slot 0 are used for all slots"),
        (lambda x: x[:, -1:].expand_as(x), "the flags of the last slot are used for all"),
        (lambda x: x.any(1, True).expand_as(x), "a flag of any slot resets all slots"),
        (lambda x: x.reshape(x.shape[::-1]).T, "flags [T, B] are read as [B, T]"),
        (lambda x: torch.cat([0 * x[:1], x[:-1]]), "flags take effect one step late"),
        (lambda x: torch.cat([x[1:], 0 * x[:1]]), "flags take effect one step early"),
        (lambda x: torch.cat([x[:1], 0 * x[1:]]), "only flags of the first step of a call count"),
        (lambda x: torch.cat([0 * x[:1], x[1:]]), "flags of the first step of a call are ignored"),
        (lambda x: torch.cat([x[:-1], 0 * x[-1:]]), "flags of the last step of a call are ignored"),
        (lambda x: 0 * x, "`first` has no effect"),
        (lambda x: x.flip(1), ""),
    ],
)
def test_the_map_of_flags_names_whose_flags_are_used(route, cause):
    checks = ["reset_at_first_step", "reset_inside_sequence", "reset_at_last_step", "reset_only_ended_slots"]
    shown = audit(ResetsBy(route), checks=checks).failures[0]
    assert shown.cause == cause
    if cause:
        assert shown.evidence.startswith(f"{cause} (in learning over sequences). sequence: ")
        assert shown.check.fix not in {check.fix for check in CHECKS}
    else:
        assert shown.check in CHECKS


def test_how_episodes_end_is_not_taken_for_a_wrong_flag():
    class IgnoresTermination(ReferencePolicy):
        def ended(self, terminated, truncated):
            return truncated != 0

    shown = audit(IgnoresTermination(), checks=["reset_on_terminated", "reset_on_truncated"]).failures[0]
    assert (shown.check.name, shown.cause) == ("reset_on_terminated", "")


class Learns(PlainPolicy):
    """Learning adds this to its outputs."""

    def __init__(self, more):
        super().__init__()
        self.extra = more

    def sequence(self, obs, state, first, actions):
        outputs, final = super().sequence(obs, state, first, actions)
        return self.extra(outputs), final


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        (lambda y: {**y, "logits": 0.9 * y["logits"]}, "the action distribution differs in learning, but values agree"),
        (lambda y: {**y, "value": 0.9 * y["value"]}, "only values differ in learning"),
        (lambda y: {name: x.half().float() for name, x in y.items()}, "only as much as rounding to bfloat16"),
        (lambda y: {name: 0.9 * x for name, x in y.items()}, ""),
        (lambda y: {name: torch.cat([x[:-1], x[-1:] + 0.01]) for name, x in y.items()}, ""),
    ],
)
def test_what_differs_in_learning_tells_where_to_look(more, cause):
    shown = audit(Learns(more), checks=["steps_equal_sequence"]).failures[0]
    assert cause in shown.cause
    assert bool(cause) == bool(shown.cause)


class StoresBy(ReferencePolicy):
    """Acting changes the state where it stores it, or where it reads it."""

    def __init__(self, change, where):
        super().__init__()
        self.change, self.changed = change, where

    def store(self, state, slots):
        super().store(self.change(state) if self.changed == "stored" else state, slots)

    def recall(self, slots):
        state = super().recall(slots)
        return self.change(state) if self.changed == "read" else state


@pytest.mark.parametrize("where", ["stored", "read"])
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda state: state[::-1], "two tensors of the state are swapped where memory is "),
        (lambda state: tuple(x.half().float() for x in state), "the state is rounded to float16 where memory is "),
        (lambda state: tuple(x.bfloat16().float() for x in state), "the state is rounded to bfloat16 where memory is "),
    ],
)
def test_what_happens_to_stored_memory_is_named(change, cause, where):
    report = audit(StoresBy(change, where), checks=["slots_in_any_order", "replay_from_stored_state"])
    assert [f.check.name for f in report.failures] == ["replay_from_stored_state", "slots_in_any_order"]
    assert report.failures[0].cause == cause + where
    assert report.failures[0].where == report.failures[1].where != ""  # both lead to act


def test_where_the_cause_is_unknown_no_cause_is_guessed():
    report = audit(StoresBy(lambda state: tuple(0.9 * x for x in state), "stored"))
    assert "even with all slots in order" in report.failures[0].cause
    assert "slot id" not in report.failures[0].check.fix
    assert report.known_bugs == []


def test_an_output_that_depends_on_later_steps_is_no_cast():
    class LooksALittleAhead(ReferencePolicy):
        """Small enough to be taken for rounding, and unlike any route of the observations."""

        def sequence(self, obs, state, first, actions):
            ahead = torch.cat([obs[3:], obs[:3]]) if len(obs) > 3 else obs
            return super().sequence(obs + 0.003 * ahead, state, first, actions)

    report = audit(LooksALittleAhead(), checks=["outputs_are_causal", "steps_equal_sequence"])
    assert [f.check.name for f in report.failures] == ["outputs_are_causal", "steps_equal_sequence"]
    assert not any("bfloat16" in f.evidence for f in report.failures)


def test_a_policy_that_does_not_repeat_its_outputs_is_not_experimented_with():
    class Noisy(ReferencePolicy):
        def encode(self, obs):
            return super().encode(obs) + 0.1 * torch.randn(obs.shape[:-1]).unsqueeze(-1)

    report = audit(Noisy(), checks=["calls_are_repeatable", "steps_equal_sequence", "reset_inside_sequence"])
    assert report.failures[0].check.name == "calls_are_repeatable"
    assert not any(finding.cause for finding in report.findings)


def test_an_error_in_a_check_has_its_own_advice():
    finding = only(RaisesWithOneSlot(), "reset_with_one_slot")
    assert "raised IndexError" in finding.evidence
    assert "in step with T=4 and B=1" in finding.evidence
    assert finding.check.fix == PolicyRaisedError.advice

    class OtherNames(PlainPolicy):
        def heads(self, y):
            return {**super().heads(y), **({"more": y} if y.shape[-2] == 1 else {})}

    finding = only(OtherNames(), "reset_with_one_slot")
    assert finding.verdict == Verdict.PASS

    class OtherShape(PlainPolicy):
        def heads(self, y):
            outputs = super().heads(y)
            return {**outputs, "value": outputs["value"].squeeze()}

    finding = only(OtherShape(), "reset_with_one_slot")
    assert "returned value of shape" in finding.evidence
    assert "squeeze() without an axis" in finding.check.fix


class LearningRaises(PlainPolicy):
    def sequence(self, obs, state, first, actions):
        if obs.shape[1] == 1:
            raise IndexError
        return super().sequence(obs, state, first, actions)


def test_an_error_names_the_call_that_raised_it():
    assert "in sequence with T=4 and B=1" in only(LearningRaises(), "reset_with_one_slot").evidence


def test_no_call_is_named_for_an_error_between_the_calls_of_a_probe():
    probe = Probe(ReferencePolicy())
    for call in (STEP, SEQUENCE, ACT):
        probe.run(call, probe.script())
        assert probe.running == ""
    probe.continue_acting(probe.script())
    assert probe.running == ""


def test_what_nan_costs_is_not_what_an_error_costs():
    class Nan(PlainPolicy):
        def heads(self, y):
            lost = float("nan") if y.shape[-2] == 1 else 0.0
            return {name: x + lost for name, x in super().heads(y).items()}

    finding = only(Nan(), "reset_with_one_slot")
    assert (finding.cause, finding.check.cost) == ("NotANumberError", NotANumberError.cost)
    assert len({kind.cost for kind in (UnusableError, PolicyRaisedError, NotANumberError)}) == 3


def test_nan_that_begins_late_is_said_once():
    report = audit(NaNAfterFortySteps())
    assert [finding.check.name for finding in report.failures] == ["steps_equal_sequence"]
    assert re.search(r"step returned NaN in value at step \d+ of \d+", report.failures[0].evidence)
    others = [f for f in report.findings if "NaN" in f.evidence and f.verdict == Verdict.NOT_RUN]
    assert len(others) > 1
    assert all("as steps_equal_sequence reports" in finding.evidence for finding in others)


@in_contract
class KeepsOnPolicy(SmallPolicy):
    last = torch.zeros(())

    def unroll(self, inputs, first, start):
        scores, values, final = super().unroll(inputs, first, start)
        before, self.last = self.last, values.detach().mean()
        return scores, values + before, final


class Keeps:
    """No module, and no Subject either."""

    def __init__(self):
        self.seen = torch.zeros(())

    def step(self, obs, state, first):
        before, self.seen = self.seen, obs.mean()
        return {"logits": obs + before + state * (first == 0)[:, None]}, torch.tanh(obs)


@pytest.mark.parametrize(
    ("subject", "named"),
    [
        (KeepsOnPolicy(), "a call changes last"),
        (StepFunction(Keeps().step, lambda B: torch.zeros(B, 3), obs_shape=(3,), slot_axis=0), "changes Keeps.seen"),
    ],
)
def test_evidence_names_attributes_of_the_user(subject, named):
    assert named in only(subject, "calls_are_repeatable").evidence


def test_a_policy_class_lists_the_tensors_that_need_no_gradient():
    class Counts(LSTMWrapper):
        """A third tensor of the state counts the steps of the episode."""

        no_gradient = (2,)

        def __init__(self, spec):
            super().__init__(spec, input_size=4, hidden_size=6, num_layers=1)
            self.actor, self.critic = nn.Linear(6, 3), nn.Linear(6, 1)

        @property
        def state_shapes(self):
            return (*super().state_shapes, (1, 1))

        def unroll(self, inputs, first, start):
            ys, state = [], start
            for x, now in zip(inputs["env_obs"], first, strict=True):
                count = state[2] * ~now[:, None]
                y, (h, c) = self.core((x + 0.1 * (count[0] > 2))[None], state[:2], now[None])
                ys.append(y[0])
                state = (h, c, count + 1)
            y = torch.stack(ys)
            return self.actor(y), self.critic(y).squeeze(-1), state

    class Undeclared(Counts):
        no_gradient = ()

    checks = ["every_state_tensor_is_used", "gradients_flow_through_time", "reset_clears_whole_state"]
    assert [f.check.name for f in audit(in_contract(Counts)(), checks=checks).failures] == []  # pyright: ignore[reportArgumentType]
    failed = audit(in_contract(Undeclared)(), checks=checks).failures  # pyright: ignore[reportArgumentType]
    assert [f.check.name for f in failed] == ["gradients_flow_through_time"]
    assert "list it in no_gradient" in failed[0].check.fix
