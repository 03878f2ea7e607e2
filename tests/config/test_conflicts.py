"""Settings that cannot work together, or would do nothing."""

import pytest

from holdfast.config import load_settings
from holdfast.config.conflicts import NEEDS
from holdfast.errors import SettingsError
from support.runs import last_of_each

DEAD = [
    # a word that would do nothing, with what makes it so, and the word that brings it to life
    (["trainer.vtrace_rho=1", "trainer.update_epochs=2"], "trainer.advantage=vtrace"),
    (["trainer.vtrace_c=2", "trainer.update_epochs=2"], "trainer.advantage=vtrace"),
    (["trainer.advantage=vtrace", "trainer.update_epochs=1"], "trainer.update_epochs=2"),
    (["trainer.prioritized.beta=0.5"], "trainer.prioritized.alpha=0.5"),
    (["trainer.schedule.lr.end=0", "trainer.schedule.lr.kind=constant"], "trainer.schedule.lr.kind=linear"),
    (["trainer.schedule.entropy_coef.end=0"], "trainer.schedule.entropy_coef.kind=cosine"),
    (["trainer.schedule.clip.end=0.1"], "trainer.schedule.clip.kind=linear"),
    (["trainer.value_clip=0.1", "trainer.value_coef=0"], None),
    (["trainer.target_kl=0.01", "trainer.update_epochs=1"], "trainer.update_epochs=2"),
    (["eval.episodes=5"], "eval.interval=10"),
    (["eval.greedy=off"], "eval.interval=10"),
    (["policy.memory_scope=lifetime", "policy.core=none"], None),
    (["policy.memory_scope=episode", "policy.core=none"], None),
    (["trainer.start_states=zeros", "policy.core=none"], None),
    (["trainer.start_states=stored", "policy.core=none"], None),
    (["trainer.burn_in=0", "policy.core=none"], None),
    (["trainer.reset_memory_each_rollout=off", "policy.core=none"], None),
    (["wandb.project=mine"], "wandb=on"),
    (["wandb.entity=us"], "wandb=offline"),
    (["wandb.group=a"], "wandb=on"),
    (["wandb.tags=[a]"], "wandb=on"),
    (["wandb.name=a"], "wandb=on"),
    (["trainer.start_states=refreshed", "trainer.update_epochs=1"], "trainer.update_epochs=2"),
]


@pytest.mark.parametrize(
    ("words", "remedy"), DEAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_word_that_would_do_nothing_is_refused(words, remedy):
    key = words[0].partition("=")[0]
    plain = ["env=gym:CartPole-v1"]  # no ready-made file: the schema's own defaults
    for order in ([*plain, *words], [*words[::-1], *plain]):
        with pytest.raises(SettingsError, match="has no effect") as caught:
            load_settings(order)
        assert str(caught.value).startswith(f"{key}=")
        assert len(str(caught.value).split("\n")) == 1
    load_settings(last_of_each([*plain, *words, remedy]) if remedy else [*plain, *words[:1]])


def test_every_rule_is_tried():
    tried = {words[0].partition("=")[0] for words, _ in DEAD}
    assert {key for rule in NEEDS for key in rule.keys} <= tried


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["trainer.burn_in=4", "trainer.start_states=zeros"],
            "trainer.burn_in=4: works only with trainer.start_states=stored",
        ),
        (["trainer.minibatch_size=100"], "trainer.minibatch_size=100: must be a multiple of trainer.horizon"),
        (["trainer.batch_size=100"], "trainer.batch_size=100: must be a multiple of "),
        (["env=gym:X", "env.num_envs=3", "trainer.horizon=7", "trainer.batch_size=100"], "3 slots"),
        (["env=gym:X", "env.num_envs=3", "trainer.horizon=7", "trainer.batch_size=100"], "84 or 105"),
        (
            ["trainer.batch_size=1024", "trainer.minibatch_size=384"],
            "does not divide trainer.batch_size=1024",
        ),
        (["policy.init=seeds", "policy.weights=runs/x"], "policy.init=seeds: has no effect with policy.weights"),
        (
            ["trainer.num_workers=9"],
            "trainer.num_workers=9: must be at most env.num_envs, which is 8",
        ),
    ],
)
def test_impossible_together(words, message):
    with pytest.raises(SettingsError) as caught:
        load_settings(words)
    assert message in str(caught.value)


def test_several_conflicts_come_in_the_order_of_the_words():
    words = ["trainer.vtrace_c=1", "policy.core=none", "trainer.burn_in=0", "trainer.vtrace_rho=1"]
    with pytest.raises(SettingsError) as caught:
        load_settings(words)
    assert str(caught.value).startswith("trainer.vtrace_c=")
    assert str(caught.value).endswith("2 more errors: trainer.burn_in, trainer.vtrace_rho.")
