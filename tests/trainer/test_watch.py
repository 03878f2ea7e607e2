"""The watch names the bug from where in the segments replay differs. Each case is a bug put into a real policy."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
# torch types every attribute of a module as `Tensor | Module`.

from dataclasses import replace

import pytest
import torch

from holdfast.config import load_settings, plan_batches
from holdfast.config.settings import TrainerSettings
from holdfast.ppo import Experience
from holdfast.rollout import Collector
from holdfast.spec import keys
from holdfast.trainer.learner import Learner
from holdfast.trainer.watch import Watch
from support.policies import VECTOR, make
from support.worlds import ScriptedWorld

SETTINGS = load_settings(["env=gym:CartPole-v1"])
TRAINER = TrainerSettings(horizon=8, batch_size=96, minibatch_size=96)


def one_update(policy, end_rate=0.15, trainer=TRAINER):
    world = ScriptedWorld(VECTOR, 4, end_rate)
    plan = plan_batches(trainer, 4)
    experience = Experience(
        {**policy.get_agent_experience_spec(), keys.ACTIONS: ((), "int64")},
        4,
        plan.horizon,
        plan.segments_per_slot,
        policy.state_shapes,
    )
    collector = Collector(world, policy, experience)
    collector.start(0)
    collector.collect()
    return Learner(policy, trainer, plan, torch.Generator().manual_seed(0)).update(experience, 0.0)


def warning(policy, settings=SETTINGS, **options):
    learned = one_update(policy, **options)
    (text,) = Watch(settings).look(learned.parity, learned.metrics)
    return text


def test_a_sound_policy_is_silent():
    learned = one_update(make("box"))
    assert learned.parity.max_log_ratio <= 1e-5
    assert Watch(SETTINGS).look(learned.parity, learned.metrics) == []


def test_a_start_state_that_was_not_lived(monkeypatch):
    """The write into the experience is shifted: the state after the segment's first step instead of before it."""
    write = Experience.write_state
    monkeypatch.setattr(
        Experience, "write_state", lambda self, t, state, *a: write(self, t, tuple(s.roll(1, 1) for s in state), *a)
    )
    text = warning(make("box"))
    assert "PARITY BREACH" in text
    assert "the segment's start state is wrong" in text


def test_learning_that_does_not_reset():
    policy = make("box")
    forward = policy.core.forward
    policy.core.forward = lambda x, state, first: forward(x, state, first & (first.shape[0] == 1))
    assert "reset memory at different steps" in warning(policy, end_rate=0.4)


def test_something_that_moves_between_acting_and_learning():
    policy = make("box")
    encode = policy.encode_observations
    policy.encode_observations = lambda obs: encode(obs) * (1.0 if torch.is_grad_enabled() else 1.3)
    assert "normaliser that changes" in warning(policy, end_rate=0.5)


def test_a_declared_deviation_is_called_declared():
    settings = load_settings(["env=gym:CartPole-v1", "trainer.start_states=zeros"])
    trainer = TRAINER.model_copy(update={"start_states": "zeros"})
    assert "Expected with trainer.start_states=zeros" in warning(make("box"), settings, trainer=trainer)


def test_the_same_trouble_is_said_once():
    policy = make("box")
    encode = policy.encode_observations
    policy.encode_observations = lambda obs: encode(obs) * (1.0 if torch.is_grad_enabled() else 1.3)
    learned = one_update(policy)
    watch = Watch(SETTINGS)
    assert len(watch.look(learned.parity, learned.metrics)) == 1
    assert watch.look(learned.parity, learned.metrics) == []


def test_an_exploding_gradient_is_noticed():
    learned = one_update(make("box"))
    watch = Watch(SETTINGS)
    for _ in range(5):
        assert watch.look(learned.parity, {"grad_norm_recurrence": 1.0}) == []
    (text,) = watch.look(learned.parity, {"grad_norm_recurrence": 1000.0})
    assert "GRADIENT EXPLODES" in text


def test_parameters_without_a_gradient_are_named_once():
    policy = make("box")
    policy.unused = torch.nn.Linear(3, 3)
    learned = one_update(policy)
    watch = Watch(SETTINGS)
    (text,) = watch.look(learned.parity, learned.metrics, learned.without_gradient)
    assert "NO GRADIENT in learning for unused.bias, unused.weight." in text
    assert "requires_grad_(False)" in text
    assert watch.look(learned.parity, learned.metrics, learned.without_gradient) == []

    (text,) = Watch(SETTINGS).look(learned.parity, learned.metrics, list("abcdef"))
    assert "for a, b, c, d and 2 more." in text
    policy.unused.requires_grad_(False)
    assert one_update(policy).without_gradient == ()


def test_only_the_first_update_reports_parameters_without_a_gradient():
    parity = one_update(make("box")).parity
    watch = Watch(SETTINGS)
    assert watch.look(parity, {}, ()) == []
    assert watch.look(parity, {}, ["late"]) == []


def warnings(rows, watch=None):
    """What the watch says over a course of metrics, with a parity that is fine."""
    parity = one_update(make("box")).parity
    watch = watch or Watch(SETTINGS)
    return [text for number, row in enumerate(rows, 1) for text in watch.look(parity, {"update": number, **row})]


def test_values_that_explode_are_noticed():
    calm = [{"value_loss": 2.0}] * 20
    assert warnings(calm) == []
    (text,) = warnings([*calm, {"value_loss": 1e5}, {"value_loss": 1e5}])
    assert "VALUES EXPLODE" in text


def test_an_agent_that_settled_without_learning_is_noticed():
    flat = [{"entropy": 1.6 * 0.8**n, "episode_return": 0.5 + 0.01 * (n % 3), "episodes": 200 + n} for n in range(40)]
    (text,) = warnings(flat)
    assert "ENTROPY COLLAPSED" in text
    risen = [row | {"episode_return": min(1.0, 0.5 + 0.02 * n)} for n, row in enumerate(flat)]
    assert warnings(risen) == []
    assert warnings([row | {"entropy": -row["entropy"]} for row in flat]) == []


def test_what_an_earlier_process_saw_is_known_and_not_said_again():
    up = [{"episode_return": min(1.0, 0.4 + 0.01 * n), "episodes": 100 + n, "entropy": 1.0} for n in range(60)]
    gone = [{"episode_return": 0.99, "episodes": 200, "entropy": 0.001}] * 5
    assert warnings(gone, Watch(SETTINGS, up)) == [], "it had learned, so it need not explore"
    low = [{"episode_return": 0.45, "episodes": 300}] * 20
    (text,) = warnings(low, Watch(SETTINGS, up))
    assert "RETURN COLLAPSED" in text
    assert warnings(low, Watch(SETTINGS, [*up, *low])) == []
    Watch(SETTINGS, [{"entropy": "a", "value_loss": [1], "episode_return": None}])  # files hold anything


def test_a_parity_that_is_not_a_number_is_a_breach():
    parity = replace(one_update(make("box")).parity, max_log_ratio=float("nan"))
    (text,) = Watch(SETTINGS).look(parity, {})
    assert "PARITY BREACH" in text


def test_a_collapse_is_noticed_once_and_noise_is_not_one():
    up = [min(1.0, 0.4 + 0.01 * n) for n in range(60)]
    rows = [{"episode_return": value, "episodes": 100 + n} for n, value in enumerate([*up, *[0.45] * 30])]
    (text,) = warnings(rows)
    assert "RETURN COLLAPSED from 0.99 at update 60 to 0.45" in text
    assert warnings(rows[:62]) == []
    noise = torch.randn(200, generator=torch.Generator().manual_seed(0)).tolist()
    assert warnings([{"episode_return": value, "episodes": 500} for value in noise]) == []
    early = [row | {"episodes": 50} for row in rows]
    assert warnings(early) == [], "a mean of few episodes says little"


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_gradient_norms_are_told_apart_by_part(core):
    metrics = one_update(make("box", core)).metrics
    parts = [metrics[f"grad_norm_{part}"] for part in ("encoder", "recurrence", "heads")]
    assert all(norm > 0 for norm in parts)
    assert metrics["grad_norm"] == pytest.approx(sum(norm**2 for norm in parts) ** 0.5, rel=0.2)
