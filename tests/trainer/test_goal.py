"""trainer.stop_at_return: when a run is finished before its last step, and what resuming it does."""

import json
import logging
import shutil
from pathlib import Path

import pytest

from holdfast.config.settings import TrainerSettings
from holdfast.runs import read_metrics
from holdfast.trainer.goal import Goal
from support.runs import CARTPOLE, digest, figures, run, run_stopped

LONG = [*CARTPOLE, "trainer.total_timesteps=6400", "trainer.checkpoint_interval=0"]  # 100 updates
STOP = "trainer.stop_at_return=15"


def goal(stop, num_slots=4):
    return Goal.of(TrainerSettings(stop_at_return=stop), 10, num_slots)


def test_a_goal_needs_enough_episodes():
    assert goal(5.0).solved(5.0, 100)
    assert not goal(5.0).solved(4.999, 1000)
    assert not goal(5.0).solved(7.0, 99)
    assert not goal(5.0, num_slots=500).solved(7.0, 499), "the first episodes to end are the short ones"
    assert goal(5.0, num_slots=500).solved(7.0, 500)
    assert goal(-300.0).solved(-200.0, 100)
    assert not goal(None).solved(1e9, 10**9)
    assert not goal(5.0).solved(None, 0)
    assert goal(None).reached(10, None, 0)
    assert not goal(5.0).reached(9, 4.0, 1000)
    assert goal(5.0).reached(3, 6.0, 1000)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that reached its goal; no test changes it."""
    return run([*LONG, STOP], tmp_path_factory.mktemp("goal"), "whole")


@pytest.fixture
def solved(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "solved"))


def summary(path):
    return json.loads((path / "summary.json").read_text())


def test_the_run_ends_at_the_first_update_that_reaches_it(solved):
    rows = read_metrics(solved)
    last = rows[-1]
    assert len(rows) < 100
    assert last["episodes"] >= 100
    assert last["episode_return"] >= 15
    assert not any(row["episodes"] >= 100 and row["episode_return"] >= 15 for row in rows[:-1])
    assert summary(solved)["solved_at"] == summary(solved)["agent_steps"] == last["agent_steps"]
    assert int(max(p.name for p in (solved / "checkpoints").iterdir())) == last["update"]


def test_a_run_that_reached_it_stays_finished_until_it_is_raised(solved, caplog):
    updates = len(read_metrics(solved))
    before = digest(solved), summary(solved), (solved / "config.yaml").read_text()
    with caplog.at_level(logging.INFO, logger="holdfast"):
        run([STOP], solved.parent, "solved")
    assert "already finished" in caplog.text
    assert "trainer.stop_at_return" in caplog.text
    assert (digest(solved), summary(solved), (solved / "config.yaml").read_text()) == before

    total = f"trainer.total_timesteps={(updates + 2) * 64}"
    run([total, "trainer.stop_at_return=1000"], solved.parent, "solved")
    assert len(read_metrics(solved)) == updates + 2
    assert summary(solved)["solved_at"] is None
    run([f"trainer.total_timesteps={(updates + 3) * 64}", "trainer.stop_at_return=null"], solved.parent, "solved")
    endless = run([*LONG, f"trainer.total_timesteps={(updates + 3) * 64}"], solved.parent, "endless")
    assert figures(solved) == figures(endless)


def test_a_stopped_and_resumed_run_ends_at_the_same_update(whole, tmp_path):
    run_stopped([*LONG, STOP], tmp_path, "cut", after=5)
    cut = run([*LONG, STOP], tmp_path, "cut")
    assert figures(cut) == figures(whole)
    assert digest(cut) == digest(whole)
