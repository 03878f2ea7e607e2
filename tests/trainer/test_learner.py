"""The learner's own work: where segments start, how often steps are learned, what a gradient step may do."""

import pytest
import torch
from torch import nn

from holdfast.config import plan_batches
from holdfast.config.settings import TrainerSettings
from holdfast.errors import HoldfastError
from holdfast.ppo import Experience
from holdfast.rollout import Collector
from holdfast.spec import keys
from holdfast.trainer.learner import Learner
from support.policies import VECTOR, make, score
from support.worlds import ScriptedWorld


def set_up(core="lstm", num_slots=3, end_rate=0.2, **options):
    trainer = TrainerSettings(**{"horizon": 6, "batch_size": 54, "minibatch_size": 18, "update_epochs": 1, **options})
    policy = make("box", core)
    plan = plan_batches(trainer, num_slots)
    experience = Experience(
        {**policy.get_agent_experience_spec(), keys.ACTIONS: ((), "int64")},
        num_slots,
        plan.horizon,
        plan.segments_per_slot,
        policy.state_shapes,
        burn_in=trainer.burn_in,
    )
    collector = Collector(ScriptedWorld(VECTOR, num_slots, end_rate), policy, experience)
    collector.start(0)
    collector.collect()
    return policy, experience, Learner(policy, trainer, plan, torch.Generator().manual_seed(0)), collector


@pytest.mark.parametrize("core", ["lstm", "gru"])
@pytest.mark.parametrize("burn_in", [2, 6, 9])
def test_burn_in_gives_the_lived_start_states_before_weights_move(core, burn_in):
    _, experience, learner, _ = set_up(core, burn_in=burn_in)
    ids = torch.arange(9)
    batch = experience.segments(ids)
    for warm, lived in zip(learner._start_state(experience, ids, batch.start_state), batch.start_state, strict=True):
        torch.testing.assert_close(warm, lived, rtol=1e-5, atol=1e-5)
        assert not warm.requires_grad


def test_burn_in_follows_the_weights():
    policy, experience, learner, _ = set_up(burn_in=3, end_rate=0.0)
    ids = torch.arange(9)
    batch = experience.segments(ids)
    with torch.no_grad():
        for p in policy.parameters():
            p.mul_(1.3)
    warm = learner._start_state(experience, ids, batch.start_state)
    assert torch.equal(warm[0][:, :3], batch.start_state[0][:, :3])  # nothing of this rollout comes before these
    assert not torch.allclose(warm[0][:, 3:], batch.start_state[0][:, 3:], atol=1e-3)


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_refreshed_start_states_are_those_of_the_new_weights(core):
    policy, experience, learner, _ = set_up(core, start_states="refreshed", update_epochs=2)
    with torch.no_grad():
        for p in policy.parameters():
            p.mul_(1.2)
    learner._refresh_start_states([experience])
    whole = experience.whole()
    expected = score(policy, whole.inputs, whole.start_state, whole.actions)[keys.VALUES]
    for k in range(3):
        batch = experience.segments(torch.arange(3 * k, 3 * k + 3))
        values = score(policy, batch.inputs, batch.start_state, batch.actions)[keys.VALUES]
        torch.testing.assert_close(values, expected[6 * k : 6 * k + 6], rtol=1e-4, atol=1e-5)


def test_zeros_start_every_segment_blank():
    _, experience, learner, _ = set_up(start_states="zeros")
    ids = torch.arange(9)
    assert all(
        (leaf == 0).all() for leaf in learner._start_state(experience, ids, experience.segments(ids).start_state)
    )


@pytest.mark.parametrize("epochs", [1, 3])
def test_each_step_is_learned_once_per_epoch(epochs, monkeypatch):
    _, experience, learner, _ = set_up(update_epochs=epochs)
    seen = []
    minibatches = experience.minibatches
    monkeypatch.setattr(experience, "minibatches", lambda ids: seen.extend(ids) or minibatches(ids))
    learner.update(experience, 0.0)
    assert torch.cat(seen).sort().values.tolist() == sorted(list(range(9)) * epochs)


def test_parity_is_measured_before_the_first_step_and_every_rollout():
    _, experience, learner, collector = set_up(lr=0.05, update_epochs=2)
    for _ in range(4):
        learned = learner.update(experience, 0.0)
        assert learned.parity.max_log_ratio <= 1e-5
        assert learned.parity.max_value <= 1e-4
        assert learned.metrics["approx_kl"] > 1e-4  # weights did move afterwards
        collector.collect()


def test_gradients_are_clipped_to_the_norm(monkeypatch):
    policy, experience, learner, _ = set_up(max_grad_norm=0.01)
    seen = []
    step = learner.optimizer.step
    monkeypatch.setattr(
        learner.optimizer,
        "step",
        lambda: (
            seen.append(torch.stack([p.grad.norm() for p in policy.parameters() if p.grad is not None]).norm()),
            step(),
        )[1],
    )
    learner.update(experience, 0.0)
    assert all(float(norm) <= 0.0101 for norm in seen)


def test_a_gradient_that_is_not_finite_moves_nothing_and_stops_the_run_when_it_stays():
    policy, experience, learner, _ = set_up(skipped_updates=2, update_epochs=2)
    skipped = []
    learner._on_skipped = lambda loss, tensors: skipped.append((loss, tensors))
    before = [p.detach().clone() for p in policy.parameters()]
    experience.outcomes()["values"].fill_(torch.nan)
    with pytest.raises(HoldfastError, match="non-finite gradient 3 times in a row"):
        learner.update(experience, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    assert len(skipped) == 3
    assert skipped[0][1][keys.VALUES].isnan().all()
    assert {keys.OBS, keys.ACTIONS, keys.LOG_PROB, "advantages", "valid", "start_state_0"} <= skipped[0][1].keys()


def test_one_bad_minibatch_does_not_stop_the_others():
    policy, experience, learner, _ = set_up(normalize_rewards=False)
    before = [p.detach().clone() for p in policy.parameters()]
    experience.outcomes()["rewards"][1, 0] = torch.inf  # the outcome of its first action: nothing came before
    metrics = learner.update(experience, 0.0).metrics
    assert metrics["skipped"] == 1
    assert all(p.isfinite().all() for p in policy.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


def test_schedules_reach_the_optimiser():
    _, experience, learner, _ = set_up(lr=0.01, schedule={"lr": {"kind": "linear", "end": 0.0}})
    assert learner.update(experience, 0.75).metrics["lr"] == pytest.approx(0.0025)
    assert learner.optimizer.param_groups[0]["lr"] == pytest.approx(0.0025)


def test_weight_clip_and_l2_init_hold_weights():
    policy, experience, learner, _ = set_up(lr=0.5, weight_clip=1.0, update_epochs=4)
    limits = learner.weight_limits
    learner.update(experience, 0.0)
    assert all(float(p.detach().abs().max()) <= limits[n] + 1e-6 for n, p in policy.named_parameters() if n in limits)

    def distance(l2_init):
        policy, experience, learner, _ = set_up(lr=0.05, l2_init=l2_init, update_epochs=10)
        first = {n: p.detach().clone() for n, p in policy.named_parameters()}
        learner.update(experience, 0.0)
        return sum(float((p.detach() - first[n]).square().sum()) for n, p in policy.named_parameters())

    assert distance(10.0) < 0.5 * distance(0.0)


def test_target_kl_stops_the_epochs(monkeypatch):
    _, experience, learner, _ = set_up(lr=0.1, update_epochs=50, target_kl=0.01)
    calls = []
    original = learner.policy.score
    monkeypatch.setitem(vars(learner.policy), "score", lambda *a: calls.append(1) or original(*a))
    learner.update(experience, 0.0)
    assert len(calls) < 50 * 3


def test_parameters_without_a_gradient_are_named():
    policy, experience, learner, _ = set_up()
    assert learner.update(experience, 0.0).without_gradient == ()
    policy.unused = nn.Linear(3, 3)
    learner = Learner(policy, learner.settings, learner.plan, torch.Generator())
    assert learner.update(experience, 0.0).without_gradient == ("unused.bias", "unused.weight")


@pytest.mark.parametrize("unit", [2.0**-10, 2.0**10])
def test_the_unit_of_normalised_rewards_makes_no_difference(unit):
    """A power of two only changes the exponent of a float, so weights are equal bit for bit."""

    def learned(unit, **options):
        torch.manual_seed(0)
        policy, experience, learner, _ = set_up(**options)
        experience.outcomes()["rewards"].mul_(unit)
        learner.update(experience, progress=0.0)
        return torch.cat([p.detach().flatten() for p in policy.parameters()])

    assert torch.equal(learned(unit, normalize_rewards=True), learned(1.0, normalize_rewards=True))
    assert not torch.equal(learned(unit, normalize_rewards=False), learned(1.0, normalize_rewards=False))
