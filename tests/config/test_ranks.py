"""How many ranks and shards a run has, and what does not fit."""

import os

import pytest

from holdfast.config import load_settings
from holdfast.config.ranks import own_rank, plan_ranks, started_ranks
from holdfast.errors import SettingsError


def planned(*words: str, started: int = 1) -> tuple[str, int | None]:
    trainer = plan_ranks(load_settings(["env=gym:CartPole-v1", "env.num_envs=12", *words]), started).trainer
    return trainer.ranks, trainer.shards


def test_a_process_alone_has_one_shard():
    assert planned() == ("1", 1)


def test_shards_are_the_ranks_that_a_run_began_with():
    assert planned("trainer.ranks=3") == ("3", 3)
    assert planned(started=4) == ("4", 4)
    assert planned("trainer.shards=6", "trainer.ranks=3") == ("3", 6)
    assert planned("trainer.shards=6", started=2) == ("2", 6)


@pytest.mark.parametrize(("cores", "words", "expected"), [(4, [], ("4", 4)), (5, [], ("4", 4)), (8, [], ("6", 6))])
def test_auto_uses_the_cores(monkeypatch, cores, words, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert planned("trainer.ranks=auto", *words) == expected


def test_auto_divides_the_shards(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)), raising=False)
    assert planned("trainer.ranks=auto", "trainer.shards=6") == ("3", 6)
    assert planned("trainer.ranks=auto", "trainer.shards=2") == ("2", 2)


@pytest.mark.parametrize(
    ("words", "started", "named"),
    [
        (["trainer.shards=4"], 3, ["3 ranks were started", "1 or 2 or 4 ranks"]),
        ([], 8, ["8 ranks were started", "env.num_envs=16"]),
        (["trainer.ranks=5"], 1, ["trainer.ranks=5", "env.num_envs=15"]),
        (["device=cuda:1"], 2, ["device=cuda:1", "device=cuda."]),
    ],
)
def test_what_does_not_fit_is_refused(words, started, named):
    with pytest.raises(SettingsError) as refused:
        planned(*words, started=started)
    assert all(text in str(refused.value) for text in named)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["trainer.shards=5"], "trainer.shards=5"),
        (["trainer.shards=4", "trainer.ranks=3"], "trainer.ranks=3"),
        (["trainer.ranks=0"], "trainer.ranks=0"),
        (["trainer.ranks=two"], "trainer.ranks=two"),
    ],
)
def test_words_that_do_not_fit_are_refused(words, key):
    with pytest.raises(SettingsError) as refused:
        planned(*words)
    assert key in str(refused.value)


def test_one_generator_for_all_environments_cannot_be_divided():
    settings = load_settings(["env=gymvec:CartPole-v1", "env.num_envs=4", "trainer.ranks=2"])
    with pytest.raises(SettingsError, match="env=gym:CartPole-v1"):
        plan_ranks(settings, 1)


def test_the_environment_variables_of_torchrun_are_read():
    assert started_ranks({}) == 1
    assert started_ranks({"WORLD_SIZE": "4"}) == 1  # set by other programs; torchrun sets RANK too
    assert (started_ranks({"WORLD_SIZE": "4", "RANK": "2"}), own_rank({"RANK": "2"})) == (4, 2)
    with pytest.raises(SettingsError, match="WORLD_SIZE"):
        started_ranks({"WORLD_SIZE": "many", "RANK": "0"})
