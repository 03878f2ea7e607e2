"""The watch names the bug from where in the segments replay differs. Each case is a bug put into a real policy."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
# torch types every attribute of a module as `Tensor | Module`.

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from holdfast.config import load_settings, plan_batches
from holdfast.config.settings import TrainerSettings
from holdfast.errors import for_terminal
from holdfast.ppo import Experience
from holdfast.rollout import Collector
from holdfast.spec import keys
from holdfast.trainer.learner import Learner, Parity
from holdfast.trainer.watch import Watch, advise_critic
from support.policies import VECTOR, make
from support.runs import CARTPOLE, run
from support.worlds import ScriptedWorld

SETTINGS = load_settings(["env=gym:CartPole-v1", "trainer.horizon=16", "trainer.update_epochs=2"])
TRAINER = TrainerSettings(horizon=8, batch_size=96, minibatch_size=96, update_epochs=1)


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


PARITY = Parity(torch.zeros(1, 1), 0.0, 0.0, torch.zeros(1, 1) > 0)


def warnings(rows, watch=None, settings=SETTINGS, updates=1000):
    """What the watch says over a course of metrics, with a parity that is fine."""
    parity = PARITY
    watch = watch or Watch(settings, updates=updates)
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
    assert "a trainer.target_kl" in text
    once = load_settings(["env=gym:CartPole-v1", "trainer.update_epochs=1"])
    (text,) = warnings(rows, settings=once)
    assert "trainer.target_kl" not in text, "a setting without effect"
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


def course(returns, per_update=50, **more):
    """Rows of metrics with these mean returns."""
    return [
        {"episode_return": value, "episodes": 100 + per_update * n, "episode_length": 10.0}
        | {name: values[n] if isinstance(values, list) else values for name, values in more.items()}
        for n, value in enumerate(returns)
    ]


WOBBLING = [0.5 + 0.01 * (-1) ** n for n in range(300)]
RISING = [min(1.0, 0.01 * n) for n in range(300)]


def test_a_critic_that_explains_nothing_is_noticed_by_update_100():
    noise = [0.03 * (-1) ** n for n in range(300)]
    (text,) = warnings(course(RISING, explained_variance=noise)[:100])
    assert "VALUES EXPLAIN NOTHING" in text
    assert "after 80 updates" in text
    (text,) = warnings(course(RISING, explained_variance=0.01)[:60], updates=100)
    assert "after 60 updates" in text, "a short run is judged earlier"
    assert warnings(course(RISING, explained_variance=0.01)[:29], updates=29) == []


def test_a_critic_with_nothing_left_to_explain_is_fine():
    good_then_flat = [0.6 if n < 80 else -0.1 for n in range(300)]
    assert warnings(course(RISING, explained_variance=good_then_flat)) == []
    spikes = [0.4 if n % 2 else -5.0 + 5.3 * (n % 3 > 0) for n in range(300)]
    assert warnings(course(RISING, explained_variance=spikes)) == []
    solved_early = [0.1 if n < 20 else -1.1 for n in range(300)]  # CartPole with the default settings
    assert warnings(course(RISING, explained_variance=solved_early)) == []
    (text,) = warnings(course(WOBBLING, explained_variance=good_then_flat))[:1]
    assert "VALUES EXPLAIN NOTHING" in text, "it has not learned anything either"


@pytest.mark.parametrize(
    ("options", "advised", "not_advised"),
    [
        ({"value_coef": 0}, "trainer.value_coef=0 switches", "trainer.normalize_rewards"),
        ({"normalize_rewards": False}, "trainer.normalize_rewards=true,", "trainer.value_clip"),
        ({"normalize_rewards": True}, "Try a larger trainer.value_coef", "trainer.normalize_rewards"),
        ({"value_clip": 0.2}, "trainer.value_clip=0,", "switches"),
    ],
)
def test_what_is_advised_for_the_critic_is_not_set_already(options, advised, not_advised):
    advice = advise_critic(TrainerSettings(**{"value_clip": 0, **options}))
    assert advised in advice
    assert not_advised not in advice


def test_a_return_that_never_rises_is_noticed_once():
    generator = torch.Generator().manual_seed(0)
    flat = (0.5 + 0.01 * torch.randn(400, generator=generator)).tolist()
    (text,) = warnings(course(flat))
    assert "RETURN HAS NOT RISEN in 200 updates" in text
    assert warnings(course(flat), Watch(SETTINGS, course(flat), 1000)) == []
    assert warnings(course(flat)[:199]) == []
    (text,) = warnings(course(flat)[:60], updates=100)
    assert "in 50 updates" in text
    slow = [value + 0.0003 * n for n, value in enumerate(flat)]
    assert warnings(course(slow)) == [], "a slow rise is one"
    assert warnings(course(flat, per_update=0)) == [], "no new episodes"
    learned = load_settings(["env=gym:CartPole-v1", "policy.weights=runs/first"])
    assert warnings(course(flat), settings=learned) == []


def test_an_agent_that_never_finds_a_reward():
    """A few lucky episodes are no peak to collapse from."""
    (text,) = warnings(course([0.0] * 300, explained_variance=0.0))
    assert "NO REWARD FOUND" in text
    (text,) = warnings(course([-200.0] * 300, explained_variance=0.0))
    assert "every episode was -200" in text
    for per_update, lucky in ((10, range(40, 50)), (100, [150]), (100, [7, 8, 9, 40, 41])):
        (text,) = warnings(course([0.01 * (n in lucky) for n in range(300)], per_update))
        assert "RETURN HAS NOT RISEN" in text


def test_a_short_horizon_is_a_hint_only_if_nothing_is_learned():
    long = {"episode_length": 90.0}
    texts = warnings(course([0.5] * 300, **long))
    assert ["SHORT HORIZON" in text for text in texts] == [False, True]
    assert "trainer.horizon, for example to 128" in texts[1]
    assert warnings(course(RISING, **long)) == []
    longer = load_settings(["env=gym:CartPole-v1", "trainer.horizon=64"])
    assert not any("HORIZON" in text for text in warnings(course([0.5] * 300, **long), settings=longer))
    forgetful = load_settings(["env=gym:CartPole-v1", "policy.core=none", "trainer.horizon=16"])
    assert not any("HORIZON" in text for text in warnings(course([0.5] * 300, **long), settings=forgetful))


def test_warnings_fit_on_a_terminal():
    rows = course(WOBBLING, explained_variance=0.0, episode_length=90.0)
    texts = warnings(rows)
    assert len(texts) == 3
    assert all(text == for_terminal(text) for text in texts)


def test_too_many_names_are_said_once():
    names = [f"name{i:03}" for i in range(65)]
    watch = Watch(SETTINGS)
    assert watch.look(PARITY, {}, (), names[:64]) == []
    (text,) = watch.look(PARITY, {}, (), names)
    assert "info/name063" in text
    assert watch.look(PARITY, {}, (), names) == []


READY = json.loads((Path(__file__).parent / "ready_metrics.json").read_text())
ARENA = READY.pop("arena: critic without a gradient")


def rows_of(columns):
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def test_a_dead_critic_in_the_arena():
    """Version 0.1's settings: rewards of a hundredth. The return doubles, which the noise of few episodes almost hides."""
    (text,) = warnings(rows_of(ARENA), updates=111)
    assert "VALUES EXPLAIN NOTHING: after 66 updates" in text


@pytest.mark.parametrize("name", READY)
def test_ready_made_settings_do_not_warn(name):
    """Metrics of one run of each, to three digits."""
    rows = rows_of(READY[name])
    settings = load_settings([f"settings={name}"])
    assert warnings(rows, settings=settings, updates=len(rows)) == []
    dead = [row | {"explained_variance": 0.02} for row in rows]
    assert any("VALUES EXPLAIN NOTHING" in text for text in warnings(dead[:100], settings=settings, updates=len(rows)))


# 40 updates of 256 steps, in which a sound critic explains half of the variance in every one of six seeds.
CRITIC = [
    *CARTPOLE,
    "env.hide=[]",
    "env.num_envs=8",
    "trainer.horizon=32",
    "trainer.batch_size=256",
    "trainer.minibatch_size=128",
    "trainer.total_timesteps=10240",
    "trainer.update_epochs=6",
    "trainer.lr=3e-3",
    "trainer.checkpoint_interval=0",
]


def test_a_real_run_with_a_dead_critic_says_so_and_a_sound_one_does_not(tmp_path, caplog):
    """The critic of the first run has a gradient, but one that is lost beside Adam's epsilon."""
    run([*CRITIC, "trainer.value_coef=1e-9"], tmp_path, "dead")
    assert "VALUES EXPLAIN NOTHING" in caplog.text
    caplog.clear()
    run([*CRITIC, "trainer.value_coef=1"], tmp_path, "sound")
    assert caplog.text == ""
