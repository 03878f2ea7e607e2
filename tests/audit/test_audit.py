"""What an audit says: verdicts, declared deviations, checks that cannot run, subjects that cannot be audited."""

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

from audit.mutants import ReferencePolicy
from audit.mutants.episodes import LearningIgnoresResets, NeverResets, ResetsOnlyH
from audit.mutants.sequences import ClearsEveryStep, StartsFromZeros
from audit.mutants.slots import ScalesByBatchMaximum
from holdfast.audit import CHECKS, Subject, UnusableError, Verdict, assert_sound, audit
from holdfast.errors import SettingsError


def declared(kind, *names):
    subject = kind()
    subject.declared = frozenset(names)
    return subject


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "deviation"),
    [
        (NeverResets, "lifetime_memory"),
        (LearningIgnoresResets, "learning_without_resets"),
        (StartsFromZeros, "zero_start_states"),
        (ClearsEveryStep, "memoryless"),
    ],
)
def test_a_declared_deviation_is_no_failure_and_an_undeclared_one_is(kind, deviation):
    assert not audit(kind()).sound
    report = audit(declared(kind, deviation))
    assert [f.check.name for f in report.failures] == []
    assert any(f.verdict == Verdict.DECLARED for f in report.findings)


@pytest.mark.parametrize("kind", [ResetsOnlyH, ScalesByBatchMaximum, NeverResets])
def test_a_declaration_excuses_nothing_else(kind):
    others = {"learning_without_resets", "zero_start_states", "memoryless"}
    assert not audit(declared(kind, *others)).sound


def test_a_declaration_about_ends_excuses_nothing_within_an_episode():
    """Learning runs through ends on purpose; that it hands back h and c exchanged is another matter."""

    class HandsBackExchanged(LearningIgnoresResets):
        def sequence(self, obs, state, first, actions):
            outputs, (h, c) = super().sequence(obs, state, first, actions)
            return outputs, (c, h)

    report = audit(declared(HandsBackExchanged, "learning_without_resets"))
    assert [f.check.name for f in report.failures] == ["final_state_is_correct"]


def test_gradients_that_are_cut_on_purpose_can_be_declared():
    class CutsEveryThirdStep(ReferencePolicy):
        def sequence(self, obs, state, first, actions):
            parts = []
            for t in range(0, len(obs), 3):
                state = tuple(leaf.detach() for leaf in state) if t else state
                outputs, state = super().sequence(obs[t : t + 3], state, first[t : t + 3], actions[t : t + 3])
                parts.append(outputs)
            return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}, state

    failed = {f.check.name for f in audit(CutsEveryThirdStep()).failures}
    assert failed == {"gradients_flow_through_time", "sequence_gradients_equal_steps"}
    assert audit(declared(CutsEveryThirdStep, "truncated_gradients")).sound


def test_what_others_are_the_echo_of_comes_first_and_is_named():
    class StacksObservations(ReferencePolicy):
        """The last observation is kept on the policy itself."""

        last = None

        def encode(self, obs):
            before = self.last if self.last is not None and self.last.shape == obs.shape else torch.zeros_like(obs)
            self.last = obs.detach().clone()
            return super().encode(obs + 0.5 * before)

    failures = audit(StacksObservations()).failures
    assert failures[0].check.name == "calls_are_repeatable"
    assert "a call changes last" in failures[0].evidence
    assert "self.last" in failures[0].check.fix


def test_a_deviation_that_does_not_exist_is_refused():
    with pytest.raises(SettingsError, match="unknown deviation no_such_thing"):
        audit(declared(ReferencePolicy, "no_such_thing"))


def test_a_check_that_does_not_exist_is_refused():
    with pytest.raises(SettingsError, match="there is no check reset_insyde"):
        audit(ReferencePolicy(), checks=["reset_insyde"])


class OnlySteps(ReferencePolicy):
    """Nothing but the three methods that everyone fills in."""

    for name in (
        "sequence",
        "act",
        "value_from_memory",
        "score",
        "get_memory",
        "set_memory",
        "reset_memory",
        "reset_slots",
        "rebuild",
    ):
        locals()[name] = getattr(Subject, name)
    del name


def test_checks_that_cannot_run_say_why():
    report = audit(OnlySteps())
    assert report.sound
    left_out = {f.check.name: f.evidence for f in report.findings if f.verdict == Verdict.NOT_RUN}
    assert left_out["memory_is_detached"].startswith("no act() provided")
    assert "no sequence() provided" in left_out["steps_equal_sequence"]
    assert "reset_inside_sequence" not in left_out
    assert all(left_out.values())


def test_a_failed_check_names_numbers_and_the_place():
    (finding,) = audit(ScalesByBatchMaximum(), checks=["slots_are_independent"]).findings
    assert "moved by 0." in finding.evidence
    assert "slot" in finding.evidence
    assert "reference_policy.py:" in finding.where


def test_a_report_as_json():
    report = audit(ResetsOnlyH(), checks=["reset_clears_whole_state", "slots_are_independent"])
    found = report.to_json()
    assert found["sound"] is False
    assert [entry["verdict"] for entry in found["findings"]] == ["FAIL", "pass"]  # pyright: ignore[reportGeneralTypeIssues]
    assert found["counts"] == {"pass": 1, "FAIL": 1, "declared": 0, "not run": 0}


class Raises(ReferencePolicy):
    def step(self, obs, state, first):
        raise RuntimeError("no luck\nat all")


class WrongShape(ReferencePolicy):
    def step(self, obs, state, first):
        outputs, state = super().step(obs, state, first)
        return {**outputs, "value": outputs["value"][:2]}, state


class TooFewObservations(ReferencePolicy):
    def observations(self, N, generator):
        return torch.zeros(3, 5)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Raises, "Raises cannot be run: RuntimeError: no luck at .*test_audit.py:\\d+$"),
        (WrongShape, r"step returned value of shape \[6, 2\]"),
        (TooFewObservations, r"observations\(48\) returned 3"),
        (Subject, "policy cannot be run: NotImplementedError"),
    ],
)
def test_what_cannot_be_audited_says_so_in_one_line(kind, said):
    with pytest.raises(UnusableError, match=said):
        audit(kind())


class RaisesOnOneSlot(ReferencePolicy):
    def step(self, obs, state, first):
        if len(obs) == 1:
            raise ValueError("one slot is one too few")
        return super().step(obs, state, first)


def test_a_policy_that_raises_in_a_check_fails_that_check():
    report = audit(RaisesOnOneSlot(), checks=["reset_with_one_slot", "slots_are_independent"])
    one_slot, apart = report.findings
    assert one_slot.verdict == Verdict.FAIL
    assert "ValueError: one slot is one too few" in one_slot.evidence
    assert apart.verdict == Verdict.PASS


def test_an_error_of_the_auditor_is_not_blamed_on_the_policy(monkeypatch):
    """A check that is itself broken stops the audit."""
    from holdfast.audit.checks import slots

    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(slots, "differences", broken)
    broken.__code__ = broken.__code__.replace(co_filename=slots.__file__)
    with pytest.raises(UnusableError, match=r"bug in the auditor.*slots_in_any_order raised ZeroDivision.*slots.py:"):
        audit(ReferencePolicy(), checks=["slots_in_any_order"])


@pytest.mark.parametrize("how", [("lifetime_memory",), ["lifetime_memory"], {"lifetime_memory"}, "lifetime_memory"])
def test_deviations_are_declared_in_any_container(how):
    class OnPurpose(NeverResets):
        declared = how

    (finding,) = audit(OnPurpose(), checks=["reset_inside_sequence"]).findings
    assert finding.verdict == Verdict.DECLARED


@pytest.mark.slow
def test_what_was_declared_and_not_needed_is_said():
    remarks = " ".join(audit(ReferencePolicy(), declared=["lifetime_memory", "boolean_flags"]).remarks)
    assert "Declared but not needed: boolean_flags, lifetime_memory." in remarks
    assert "not needed" not in " ".join(audit(NeverResets(), declared="lifetime_memory").remarks)


def test_an_output_that_is_not_a_number_cannot_be_audited():
    class Nan(ReferencePolicy):
        def heads(self, y):
            log_probs, value = super().heads(y)
            return log_probs, value * float("nan")

    with pytest.raises(UnusableError, match="step returned NaN in value"):
        audit(Nan())


def test_a_state_that_is_not_a_number_cannot_be_audited():
    class Nan(ReferencePolicy):
        def step(self, obs, state, first):
            outputs, (h, c) = super().step(obs, state, first)
            return outputs, (h, c * float("nan"))

    with pytest.raises(UnusableError, match="step returned NaN in the state"):
        audit(Nan())


def test_an_audit_leaves_the_random_state_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    audit(ReferencePolicy(), quick=True)
    assert torch.equal(torch.rand(1), expected)


def test_a_quick_audit_is_a_part_of_the_whole():
    quick = {f.check.name for f in audit(ReferencePolicy(), quick=True).findings}
    assert quick == {check.name for check in CHECKS if check.quick}
    assert 10 <= len(quick) < len(CHECKS)


def test_assert_sound():
    assert assert_sound(ReferencePolicy()).sound
    assert assert_sound(NeverResets(), declared=["lifetime_memory"]).sound
    with pytest.raises(AssertionError, match=r"reset_clears_whole_state: .*\n  Clear every tensor"):
        assert_sound(ResetsOnlyH(), checks=["reset_clears_whole_state"])


def test_assert_sound_takes_what_the_command_line_takes_and_functions(tmp_path):
    checks = ["slots_are_independent"]
    file = tmp_path / "sounding.py"
    file.write_text("from audit.mutants import ReferencePolicy\ndef subject():\n    return ReferencePolicy()\n")
    example = Path(__file__).parents[2] / "examples" / "custom_policy.py"
    assert assert_sound(f"{file}:subject", checks=checks).sound
    assert assert_sound(f"{example}:MyPolicy", "env=gym:CartPole-v1", checks=checks).name.endswith("in gym:CartPole-v1")
    assert assert_sound(ReferencePolicy, checks=checks).sound
    assert assert_sound(lambda: ReferencePolicy(), checks=checks).sound


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (3, "cannot audit int"),
        (lambda: 3, "cannot audit int"),
        (nn.LSTM(2, 3), "cannot audit LSTM"),
        (nn.LSTM, "cannot audit LSTM"),
    ],
)
def test_assert_sound_refuses_what_is_no_subject(policy, said):
    with pytest.raises(TypeError, match=said):
        assert_sound(policy)


def test_assert_sound_refuses_words_that_mean_nothing():
    with pytest.raises(SettingsError, match="env=memory: ReferencePolicy takes no settings"):
        assert_sound(ReferencePolicy, "env=memory")
    with pytest.raises(SettingsError, match=r"runs/first: give KEY=VALUE or FILE\.py:NAME"):
        assert_sound("runs/first")


def test_every_method_an_adapter_may_fill_in_is_explained_and_named_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    methods = [name for name in vars(Subject) if inspect.isfunction(vars(Subject)[name])]
    assert "reset_slots" in methods
    assert [name for name in methods if not vars(Subject)[name].__doc__] == []
    assert [name for name in methods if f"`{name}`" not in page and f"def {name}(" not in page] == []


class OnlyLogProbs(OnlySteps):
    """Puts out what it drew and nothing else."""

    def step(self, obs, state, first):
        outputs, state = ReferencePolicy.step(self, obs, state, first)
        return {name: outputs[name] for name in ("actions", "log_prob")}, state


@pytest.mark.parametrize("seed", range(4))
def test_log_probs_alone_are_enough_to_look_at(seed):
    report = audit(OnlyLogProbs(seed), seed=seed)
    assert report.sound
    assert "slots_are_independent" not in {f.check.name for f in report.findings if f.verdict == Verdict.NOT_RUN}


def test_a_policy_that_hardly_answers_is_woken_up():
    class Weak(ReferencePolicy):
        def __init__(self, seed=0):
            super().__init__(seed)
            with torch.no_grad():
                self.module.encoder.weight.mul_(1e-7)

        def encode(self, obs):
            x = super().encode(obs)
            return x - x.mean(-2, keepdim=True)

    subject = Weak()
    kept = subject.module.encoder.weight.detach().clone()
    report = audit(subject, checks=["slots_are_independent"])
    assert not report.sound
    assert "weight matrices were scaled up" in report.note
    assert torch.equal(subject.module.encoder.weight, kept)
