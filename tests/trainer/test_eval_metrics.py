"""Evaluation while training: it is logged, it changes nothing else, and a failure does not end the run."""

import random

import numpy as np
import pytest
import torch

from holdfast.config import load_settings
from holdfast.envs import World
from holdfast.errors import HoldfastError, SettingsError
from holdfast.policies import make_policy
from holdfast.runs import read_metrics
from holdfast.trainer import eval_metrics
from support.runs import CARTPOLE, SMALL_NET, TINY, digest, figures, run, run_stopped

TELLING = ["env=gym:support.telling:Telling-v0", *TINY, *SMALL_NET]  # four updates
EVAL = ["eval.interval=2", "eval.episodes=6", "eval.greedy=false"]
EVALUATED = {"eval/return", "eval/return_std", "eval/length"}


def split(rows):
    """Return the rows without, and the rows with only, the metrics of evaluations."""
    return [[{k: v for k, v in row.items() if k.startswith("eval/") == only} for row in rows] for only in (False, True)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return run(TELLING, tmp_path_factory.mktemp("plain"), "plain")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    return run([*TELLING, *EVAL], tmp_path_factory.mktemp("evaluated"), "evaluated")


def test_an_evaluated_run_is_the_same_run(plain, evaluated):
    """Weights, optimizer, memory and random states, although the world draws from the global generators."""
    rest, found = split(figures(evaluated))
    assert rest == figures(plain)
    assert {**digest(evaluated), "metrics": ""} == {**digest(plain), "metrics": ""}
    assert [row.keys() >= EVALUATED for row in found] == [False, True, False, True]
    assert {"eval/info/success", "eval/info/score"} <= found[1].keys()
    assert 0 <= found[1]["eval/info/success"] <= 1
    assert found[1]["eval/length"] >= 3


def test_a_resumed_run_is_evaluated_alike(evaluated, tmp_path):
    run_stopped([*TELLING, *EVAL], tmp_path, "cut", after=3)
    cut = run([*TELLING, *EVAL], tmp_path, "cut")
    assert figures(cut) == figures(evaluated)
    assert digest(cut) == digest(evaluated)


def policy_of(words):
    settings = load_settings(words)
    return settings, make_policy(settings.policy, settings.env.describe())


def test_a_run_with_workers_is_evaluated_in_one():
    settings, policy = policy_of([*TELLING, *EVAL])
    here = eval_metrics.eval_metrics(settings, policy)
    with_workers = load_settings([*TELLING, *EVAL, "trainer.num_workers=2"])
    assert eval_metrics.eval_metrics(with_workers, policy) == here


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def next_draws():
    return random.random(), np.random.random(), float(torch.rand(1))


def test_global_generators_and_mode_are_left_alone():
    settings, policy = policy_of([*TELLING, *EVAL])
    policy.train()
    seed_all(1)
    expected = next_draws()
    seed_all(1)
    first = eval_metrics.eval_metrics(settings, policy)
    assert next_draws() == expected
    assert policy.training
    assert eval_metrics.eval_metrics(settings, policy) == first, "the same episodes each time"


def test_evaluation_has_seeds_of_its_own(monkeypatch):
    """Seeds of runs are below 2**31."""
    settings, policy = policy_of([*TELLING, *EVAL, "seed=7"])
    seeds, reset = [], World.reset

    def noted(self, *, seed):
        seeds.append(seed)
        return reset(self, seed=seed)

    monkeypatch.setattr(World, "reset", noted)
    eval_metrics.eval_metrics(settings, policy)
    assert seeds == [2**31 + 7]


def test_a_failed_evaluation_does_not_end_the_run(tmp_path, monkeypatch, caplog):
    def fail(*args, **kwargs):
        raise HoldfastError("the world is on fire")

    monkeypatch.setattr(eval_metrics, "play_episodes", fail)
    path = run([*CARTPOLE, "eval.interval=1"], tmp_path, "failed")
    assert len(read_metrics(path)) == 4
    assert not any("eval/return" in row for row in read_metrics(path))
    assert "the world is on fire" in caplog.text


def test_episodes_without_evaluation_are_refused():
    with pytest.raises(SettingsError, match=r"eval\.episodes.*eval\.interval"):
        load_settings([*CARTPOLE, "eval.episodes=5"])
