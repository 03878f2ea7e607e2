"""ReferencePolicy policies of unusual kinds pass, and states of the wrong shape are said to be so, not accused of something else."""

import pytest
import torch

from audit.false_alarms import KINDS
from audit.mutants import ReferencePolicy
from audit.mutants.gradients import DetachesEveryStep
from holdfast.audit import UnusableError, Verdict, assert_sound, audit
from holdfast.audit.adapters import StepFunction
from support.findings import only
from support.unusual_policies import (
    ActsWithoutGradients,
    CountsSteps,
    DrawsByRejection,
    HandsBackNoState,
    TakesOnlyBooleans,
)

pytestmark = pytest.mark.slow


def failures(subject, checks=None):
    return [(f.check.name, f.evidence) for f in audit(subject, checks).failures]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_sound_policy_of_an_unusual_kind_passes(kind):
    assert failures(kind()) == []


def test_another_number_of_draws_is_no_leak():
    """With these seeds a slot rarely draws again, so that a few runs draw equally often by chance."""
    for seed in (3, 5):
        report = audit(
            DrawsByRejection(seed), seed=seed, checks=["slots_are_independent", "reset_on_consecutive_steps"]
        )
        assert report.failures == []


def test_the_kinds_are_many():
    assert len({kind.__name__ + kind.__module__ for kind in KINDS}) == len(KINDS) >= 40


def test_tensors_of_the_state_may_be_as_long_as_there_are_slots_and_no_more():
    cell, table, head = torch.nn.GRUCell(3 + 2, 6), torch.nn.Embedding(8, 2), torch.nn.Linear(6, 2)

    def step(obs, state, first):
        time = torch.where(first != 0, 0, state["time"])
        h = cell(torch.cat([obs, table(time % 8)], -1), state["h"] * (first == 0).float()[:, None])
        return {"logits": head(h)}, {"h": h, "time": time + 1, "scale": state["scale"] * 1.0}

    def unroll(obs, state, first):
        steps = []
        for x, flag in zip(obs, first, strict=True):
            outputs, state = step(x, state, flag)
            steps.append(outputs["logits"])
        return {"logits": torch.stack(steps)}, state

    def blank(B):
        return {"h": torch.zeros(B, 6), "time": torch.zeros(B, dtype=torch.long), "scale": torch.ones(B)}

    module = torch.nn.ModuleList([cell, table, head])
    subject = StepFunction(step, blank, obs_shape=(3,), slot_axis=0, sequence=unroll, module=module, no_gradient=(2,))
    assert failures(subject) == []


def test_learning_is_looked_at_even_if_acting_has_no_gradients():
    class ActsWithoutAndDetaches(ActsWithoutGradients, DetachesEveryStep):
        pass

    check = "gradients_flow_through_time"
    assert check in dict(failures(ActsWithoutAndDetaches(), [check]))


def test_a_counter_that_is_never_reset_is_seen_where_the_rest_is():
    class NeverResetsItsCount(CountsSteps):
        def reset(self, state, first):
            return (*super().reset(state, first)[:2], state[2])

    checks = ["reset_clears_whole_state", "reset_at_first_step", "reset_with_one_slot"]
    found = dict(failures(NeverResetsItsCount(), checks))
    assert found.keys() == {*checks}
    assert "tensor 2 of the state" in found["reset_clears_whole_state"]


def test_an_output_that_nothing_moves_does_not_wake_a_policy():
    class HasADeviation(ReferencePolicy):
        def scores(self, log_probs, value, actions):
            return {**super().scores(log_probs, value, actions), "deviation": torch.ones_like(value)}

    loud = HasADeviation()
    with torch.no_grad():
        for weight in loud.module.parameters():
            weight.mul_(2.0)
    assert audit(loud, checks=["reset_inside_sequence"]).note == ""
    quiet = HasADeviation()
    with torch.no_grad():
        quiet.module.critic.weight.mul_(1e-6)
    assert "an observation moved value by" in audit(quiet, checks=["reset_inside_sequence"]).note


def test_what_could_not_run_is_not_run():
    found = only(TakesOnlyBooleans(), "integer_flags")
    assert found.verdict == Verdict.NOT_RUN
    assert "refuses flags that are not boolean" in found.evidence
    assert only(HandsBackNoState(), "final_state_is_correct").evidence == "sequence returns no state"
    with pytest.raises(AssertionError, match="integer_flags could not run"):
        assert_sound(TakesOnlyBooleans(), checks=["integer_flags"])


class StateOnAnotherAxis(ReferencePolicy):
    def initial_state(self, B):
        return (torch.zeros(B, 6),)


class StateIsATensor(ReferencePolicy):
    def step(self, obs, state, first):
        outputs, after = super().step(obs, state, first)
        return outputs, torch.stack(after)


class OutputsAreATensor(ReferencePolicy):
    def step(self, obs, state, first):
        outputs, after = super().step(obs, state, first)
        return outputs["value"], after


class OnlyActions(ReferencePolicy):
    def step(self, obs, state, first):
        outputs, after = super().step(obs, state, first)
        return {"actions": outputs["actions"]}, after


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (StateOnAnotherAxis, r"tensor 0 of the state has shape \[3, 6\], but needs 3 slots on axis 1"),
        (StateIsATensor, "step returned a state of type Tensor: return a tuple of tensors"),
        (OutputsAreATensor, "step returned outputs of type Tensor: return a dict of tensors"),
        (OnlyActions, "step returns nothing but actions"),
    ],
)
def test_a_subject_of_the_wrong_shape_is_told_which(kind, said):
    with pytest.raises(UnusableError, match=said):
        audit(kind())


def test_an_audit_leaves_statistics_as_they_were_even_if_they_are_replaced():
    class Averages(ReferencePolicy):
        def network(self):
            network = super().network()
            network.register_buffer("mean", torch.zeros(()))
            return network

        def encode(self, obs):
            self.module.mean = 0.9 * self.module.mean + 0.1 * obs.detach().mean()  # pyright: ignore[reportOperatorIssue]
            return super().encode(obs)

    subject = Averages()
    assert failures(subject, "calls_do_not_change_weights")
    assert float(subject.module.mean) == 0.0  # pyright: ignore[reportArgumentType]


def test_an_audit_leaves_the_policy_as_it_was():
    subject = ReferencePolicy()
    subject.module.encoder.eval()
    kept = {name: x.clone() for name, x in subject.module.state_dict().items()}
    with torch.no_grad():
        subject.module.critic.weight.mul_(1e-6)
    quiet = subject.module.critic.weight.clone()
    audit(subject)
    assert not subject.module.encoder.training
    assert subject.module.critic.training
    assert torch.equal(subject.module.critic.weight, quiet)
    assert torch.equal(subject.module.encoder.weight, kept["encoder.weight"])
