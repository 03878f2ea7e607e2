"""Guarantee 9: a run that is stopped anywhere and resumed equals an uninterrupted run, bit for bit.

tests/reliability covers kills, signals and damaged files, and shows that every part of a checkpoint is needed.
"""

import json
import re

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.checkpoint import load_checkpoint, newest_first
from holdfast.config import load_settings
from holdfast.rollout import Collector
from holdfast.runs import read_metrics
from holdfast.trainer import train
from holdfast.trainer.learner import Learner
from holdfast.trainer.signals import Stopped
from support.runs import figures, last_of_each

CARTPOLE = [
    "env=gym:CartPole-v1",
    "env.hide=[1,3]",
    "env.num_envs=4",
    "trainer.horizon=8",
    "trainer.batch_size=64",
    "trainer.minibatch_size=32",
    "trainer.total_timesteps=320",
    "trainer.update_epochs=1",
    "trainer.checkpoint_interval=0",
    "policy.hidden=8",
    "policy.encoder=[8]",
    "policy.heads=[8]",
    "progress=off",
]
MEMORY = [
    "env.num_envs=2",
    "env.rooms=2",
    "trainer.horizon=8",
    "trainer.batch_size=64",
    "trainer.minibatch_size=32",
    "trainer.total_timesteps=192",
    "trainer.checkpoint_interval=0",
    "policy.hidden=8",
    "progress=off",
]


def state(run):
    """Return everything that must be equal at the end."""
    saved = load_checkpoint(newest_first(run / "checkpoints")[0])
    summary = json.loads((run / "summary.json").read_text())
    totals = {key: summary[key] for key in ("agent_steps", "episode_return_mean", "episodes", "exact")}
    return saved.tensors, figures(run), totals


def assert_same(one, other):
    (tensors, *rest), (other_tensors, *other_rest) = one, other
    assert tensors.keys() == other_tensors.keys()
    for group, members in tensors.items():
        assert members.keys() == other_tensors[group].keys()
        for name, x in members.items():
            assert x.dtype == other_tensors[group][name].dtype, (group, name)
            assert torch.equal(x, other_tensors[group][name]), (group, name)
    assert rest == other_rest


def stop_at(monkeypatch, owner, name, call):
    """Stop the run, as SIGTERM does, after the call-th call of this method."""
    original, calls = getattr(owner, name), []

    def counted(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        calls.append(name)
        if len(calls) == call:
            raise Stopped(15)
        return result

    monkeypatch.setattr(owner, name, counted)


def resumed(words, folder, name, stops):
    """Stop a run at each of these calls and resume it each time; return its final state."""
    for owner, method, call in stops:
        run = load_settings([*words, f"runs_dir={folder}", f"run={name}"])
        with pytest.MonkeyPatch.context() as patch:
            stop_at(patch, owner, method, call)
            with pytest.raises(Stopped):
                train(run)
        torch.manual_seed(12345)  # another process has another global random state
    return state(train(load_settings([*words, f"runs_dir={folder}", f"run={name}"])).run)


@pytest.mark.parametrize("core", ["lstm", "gru", "mingru", "none"])
@pytest.mark.parametrize("agent", ["py_agent=fast", "agent=fast", "agent=latent_attn_tiny"])
def test_resume_is_exact_for_every_core_and_both_families(agent, core, tmp_path):
    words = [*MEMORY, agent, f"policy.core={core}"]
    whole = state(train(load_settings([*words, f"runs_dir={tmp_path}", "run=whole"])).run)
    assert_same(resumed(words, tmp_path, "cut", [(Collector, "collect", 2), (Learner, "_step", 2)]), whole)


OPTIONS = {
    "plain": [],
    "first weights": ["trainer.l2_init=0.1", "trainer.weight_clip=1.5"],
    "schedules and several epochs": [
        "trainer.update_epochs=3",
        "trainer.schedule.lr.kind=cosine",
        "trainer.schedule.clip.kind=linear",
        "trainer.start_states=refreshed",
    ],
    "priorities": ["trainer.prioritized.alpha=0.8", "trainer.burn_in=4"],
    "memory for life": ["policy.memory_scope=lifetime", "policy.layers=2"],
    "memory wiped": ["trainer.reset_memory_each_rollout=true"],
    "rewards normalised": ["trainer.normalize_rewards=true"],
    "previous step": ["policy.sees=[action,reward]", "trainer.burn_in=4"],
}


@pytest.mark.parametrize("scope", ["episode", "lifetime"])
def test_resume_is_exact_for_a_policy_that_sees_its_previous_step(scope, tmp_path):
    words = [*CARTPOLE, "policy.sees=[action,reward]", f"policy.memory_scope={scope}", "trainer.num_workers=2"]
    whole = state(train(load_settings([*words, f"runs_dir={tmp_path}", "run=whole"])).run)
    assert (whole[0]["arrived"]["last_actions"] >= 0).all()
    assert_same(resumed(words, tmp_path, "cut", [(Collector, "collect", 3)]), whole)


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return {
        name: state(train(load_settings([*last_of_each([*CARTPOLE, *words]), f"runs_dir={folder}", f"run={i}"])).run)
        for i, (name, words) in enumerate(OPTIONS.items())
    }


@pytest.mark.slow
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_resume_is_exact_after_any_number_of_stops(whole_runs, tmp_path_factory, data):
    option = data.draw(st.sampled_from(sorted(OPTIONS)))
    place = st.tuples(
        *[st.sampled_from([(Collector, "collect"), (Learner, "_step"), (Learner, "update")]), st.integers(1, 2)]
    )
    stops = [(*where, call) for where, call in data.draw(st.lists(place, min_size=1, max_size=3))]
    folder = tmp_path_factory.mktemp("cut")
    assert_same(resumed(last_of_each([*CARTPOLE, *OPTIONS[option]]), folder, "cut", stops), whole_runs[option])


def test_worlds_that_cannot_be_replayed_start_new_episodes(tmp_path, caplog):
    words = [word for word in CARTPOLE if not word.startswith("env=")] + ["env=gymvec:CartPole-v1"]
    *_, figures = resumed(words, tmp_path, "cut", [(Collector, "collect", 3)])
    messages = caplog.text
    assert "gymvec:CartPole-v1: all environments share one random generator" in messages
    assert "new episodes" in messages
    assert figures["exact"] is False
    assert [row["update"] for row in read_metrics(tmp_path / "cut")] == [1, 2, 3, 4, 5]


def test_a_resume_with_other_threads_is_not_exact(tmp_path, caplog):
    one, two = "trainer.threads=1", "trainer.threads=2"
    words = [*CARTPOLE, f"runs_dir={tmp_path}", "run=cut"]
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, Collector, "collect", 3)
        with pytest.raises(Stopped):
            train(load_settings([*words, one]))
    train(load_settings([f"runs_dir={tmp_path}", "run=cut", two]))
    assert re.search(r"trainer\.threads\W+1\D+2", caplog.text)
    assert json.loads((tmp_path / "cut" / "summary.json").read_text())["exact"] is False
