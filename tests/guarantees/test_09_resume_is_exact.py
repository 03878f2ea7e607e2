"""Guarantee 9: a run that was stopped anywhere and continued is the run that was never stopped, bit for bit.

tests/reliability has the kills, the signals and the damaged files; and that it takes everything that is saved.
"""

import json

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.checkpoint import load_checkpoint, newest_checkpoint
from holdfast.config import load_settings
from holdfast.rollout import Collector
from holdfast.runs import read_metrics
from holdfast.trainer import train
from holdfast.trainer.learner import Learner
from holdfast.trainer.signals import Stopped
from support.runs import figures

CARTPOLE = [
    "env=gym:CartPole-v1",
    "env.hide=[1,3]",
    "env.num_envs=4",
    "trainer.horizon=8",
    "trainer.batch_size=64",
    "trainer.minibatch_size=32",
    "trainer.total_timesteps=320",
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
    """Everything that has to be equal at the end."""
    saved = load_checkpoint(newest_checkpoint(run / "checkpoints"))
    summary = json.loads((run / "summary.json").read_text())
    totals = {key: summary[key] for key in ("agent_steps", "episode_return_mean", "episodes", "exact")}
    return saved.tensors, figures(run), totals


def same(one, other):
    (tensors, *rest), (other_tensors, *other_rest) = one, other
    assert tensors.keys() == other_tensors.keys()
    for group, members in tensors.items():
        assert members.keys() == other_tensors[group].keys()
        for name, x in members.items():
            assert x.dtype == other_tensors[group][name].dtype, (group, name)
            assert torch.equal(x, other_tensors[group][name]), (group, name)
    assert rest == other_rest


def stop_at(monkeypatch, owner, name, call):
    """The call-th call of this method ends the run as a signal would, when it is done."""
    original, calls = getattr(owner, name), []

    def counted(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        calls.append(name)
        if len(calls) == call:
            raise Stopped(15)
        return result

    monkeypatch.setattr(owner, name, counted)


def continued(words, folder, name, stops):
    """The run after being stopped at each of these places, each time by another process as far as the run can tell."""
    for owner, method, call in stops:
        run = load_settings([*words, f"runs_dir={folder}", f"run={name}"])
        with pytest.MonkeyPatch.context() as patch:
            stop_at(patch, owner, method, call)
            with pytest.raises(Stopped):
                train(run)
        torch.manual_seed(12345)  # whatever another process would have
    return state(train(load_settings([*words, f"runs_dir={folder}", f"run={name}"])).run)


@pytest.mark.parametrize("core", ["lstm", "gru", "mingru", "none"])
@pytest.mark.parametrize("agent", ["py_agent=fast", "agent=fast", "agent=latent_attn_tiny"])
def test_every_core_and_both_families(agent, core, tmp_path):
    words = [*MEMORY, agent, f"policy.core={core}"]
    whole = state(train(load_settings([*words, f"runs_dir={tmp_path}", "run=whole"])).run)
    same(continued(words, tmp_path, "cut", [(Collector, "collect", 2), (Learner, "_step", 2)]), whole)


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
}


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return {
        name: state(train(load_settings([*CARTPOLE, *words, f"runs_dir={folder}", f"run={i}"])).run)
        for i, (name, words) in enumerate(OPTIONS.items())
    }


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_stopped_anywhere_and_however_often(whole_runs, tmp_path_factory, data):
    option = data.draw(st.sampled_from(sorted(OPTIONS)))
    place = st.tuples(
        *[st.sampled_from([(Collector, "collect"), (Learner, "_step"), (Learner, "update")]), st.integers(1, 2)]
    )
    stops = [(*where, call) for where, call in data.draw(st.lists(place, min_size=1, max_size=3))]
    folder = tmp_path_factory.mktemp("cut")
    same(continued([*CARTPOLE, *OPTIONS[option]], folder, "cut", stops), whole_runs[option])


def test_worlds_that_cannot_come_back_say_so_and_start_new_episodes(tmp_path, capsys):
    words = [word for word in CARTPOLE if not word.startswith("env=")] + ["env=gymvec:CartPole-v1"]
    *_, figures = continued(words, tmp_path, "cut", [(Collector, "collect", 3)])
    said = capsys.readouterr().err
    assert "a vector environment draws its episodes from one generator" in said
    assert "with new episodes, so not exactly" in said
    assert figures["exact"] is False
    assert [row["update"] for row in read_metrics(tmp_path / "cut")] == [1, 2, 3, 4, 5]


def test_other_threads_are_not_called_exact(tmp_path, capsys):
    one, two = "trainer.threads=1", "trainer.threads=2"
    words = [*CARTPOLE, f"runs_dir={tmp_path}", "run=cut"]
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, Collector, "collect", 3)
        with pytest.raises(Stopped):
            train(load_settings([*words, one]))
    train(load_settings([f"runs_dir={tmp_path}", "run=cut", two]))
    said = capsys.readouterr().err
    assert "from here on with trainer.threads 1 -> 2" in said
    assert "saved with threads 1 (here 2)" in said
    assert json.loads((tmp_path / "cut" / "summary.json").read_text())["exact"] is False
