"""Sweeps: what is started and proposed, what is checked before, the table; and children that end with their sweep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import load_settings
from holdfast.errors import SettingsError
from holdfast.files import Folder
from holdfast.runs.lock import RunLock
from holdfast.sweeps import sweep as sweep_module
from holdfast.sweeps.check import first_refusal
from holdfast.sweeps.plan import make_plan, run_words
from holdfast.sweeps.results import best_words, mean_curve, outcome_of, picture_of, table_columns, table_of
from holdfast.sweeps.store import open_sweep
from holdfast.sweeps.sweep import SweepRunner
from holdfast.trainer import train
from support.runs import CARTPOLE, last_of_each
from support.sweeps import AXES, WORDS, WORLD, run_here, train_here


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return train_here(monkeypatch)


def test_what_training_would_refuse_is_found_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(WORLD)
    good = ["env=gym:CartPole-v1"]
    found = first_refusal([good, ["env=gym:Nope-v1"], ["env=gym:NeverBuilt-v1"]])
    assert found is not None
    assert found[0] == 1
    assert "Nope-v1" in found[1]
    with pytest.raises(SettingsError, match=r"could not be checked: .* exit code -9"):
        first_refusal([["env=./mine.py:crashes"]])


def test_a_child_stops_when_the_pipe_of_its_sweep_closes():
    code = "import os, sys, threading, time; from holdfast.cli.child import end_with; "
    code += "threading.Thread(target=end_with, args=[int(sys.argv[1])], daemon=True).start(); "
    code += "print('ready', flush=True); time.sleep(60)"
    reader, writer = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code, str(reader)], pass_fds=[reader], stdout=subprocess.PIPE)
    os.close(reader)
    assert process.stdout.readline() == b"ready\n"
    assert process.poll() is None
    os.close(writer)
    assert process.wait(20) == -signal.SIGTERM


def test_a_search_that_is_interrupted_proposes_the_same_values(tmp_path, in_this_process, monkeypatch):
    words = last_of_each([*WORDS, "trainer.lr=1e-5..1e-1", "policy.core=lstm,gru", "trainer.total_timesteps=128"])
    expected = run_here(tmp_path / "whole", words, "demo", trials=7)
    assert len(expected[1]) == 7
    assert len(in_this_process) == 7
    start = sweep_module.start
    for limit in (2, 5):
        calls = []

        def interrupted(run, given, sweep, limit=limit, calls=calls):
            calls.append(run)
            if len(calls) > limit:
                raise KeyboardInterrupt
            return start(run, given, sweep)

        monkeypatch.setattr(sweep_module, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_here(tmp_path / "cut", words, "demo", trials=9)
    monkeypatch.setattr(sweep_module, "start", start)
    found = run_here(tmp_path / "cut", words, "demo", trials=9)
    assert found[1][:7] == expected[1]
    assert len(found[1]) == 9


def test_trials_with_seeds_are_runs_of_each_seed(tmp_path, in_this_process):
    words = last_of_each([*WORDS, "trainer.lr=1e-5..1e-1", "seed=0,1", "trainer.total_timesteps=64"])
    (_, cells), proposed = run_here(tmp_path, words, "demo", trials=2)
    assert len(in_this_process) == 4
    assert [row[-1] for row in cells] == ["2 of 2"] * 2
    assert {row[0] for row in cells} == {values["trainer.lr"] for values in proposed}


def test_a_finished_sweep_starts_nothing_and_one_that_lost_a_run_only_that(tmp_path, in_this_process):
    words = last_of_each([*WORDS, *AXES, "trainer.total_timesteps=64"])
    first = run_here(tmp_path, words, "demo")
    in_this_process.clear()
    assert run_here(tmp_path, words, "demo") == first
    assert in_this_process == []
    (tmp_path / "demo" / "002-lr_3e-3-seed_1" / "summary.json").unlink()
    (tmp_path / "demo" / "004-lr_1e-4-seed_1" / "summary.json").write_text("[]")
    assert run_here(tmp_path, words, "demo") == first
    assert in_this_process == ["002-lr_3e-3-seed_1", "004-lr_1e-4-seed_1"]


def test_a_run_that_another_process_trains_is_waited_for(tmp_path, in_this_process, monkeypatch):
    words = last_of_each([*WORDS, *AXES, "trainer.total_timesteps=64"])
    plan = make_plan(words, "demo", 0, "episode_return_mean", False)
    lines: list[str] = []
    with open_sweep(plan, tmp_path) as opened, opened.folder.subfolder("001-lr_3e-3-seed_0", create=True) as folder:
        lock = RunLock.take(folder)
        monkeypatch.setattr(sweep_module.time, "sleep", lambda _: lock.release() if len(in_this_process) == 3 else 0)
        SweepRunner(opened, 1, lines.append).run()
    assert [name[:3] for name in in_this_process] == ["002", "003", "004", "001"]
    assert sum("another process" in line for line in lines) == 1


def test_a_run_without_a_checkpoint_whose_weights_come_from_elsewhere_starts_again(tmp_path, in_this_process):
    base = train(load_settings([*CARTPOLE, f"runs_dir={tmp_path}", "run=base"])).run
    words = [*WORDS, f"policy.weights={base}", "seed=0,1"]
    plan = make_plan(words, "demo", 0, "episode_return_mean", False)
    with open_sweep(plan, tmp_path) as opened:
        run = plan.runs_of(plan.grid()[0])[0]
        folder = train(load_settings(run_words(run, plan, opened.path))).run
        for path in (*folder.glob("checkpoints/*/*"), *folder.glob("checkpoints/*"), folder / "checkpoints"):
            path.rmdir() if path.is_dir() else path.unlink()
        (folder / "summary.json").unlink()
    (_, cells), _ = run_here(tmp_path, words, "demo")
    assert cells[0][-1] == "2 of 2"


def test_runs_of_a_sweep_are_a_group_at_weights_and_biases(tmp_path):
    plan = make_plan([*WORDS, *AXES, "wandb=offline"], "demo", 0, "episode_return_mean", False)
    run = plan.runs_of(plan.grid()[0])[0]
    assert "wandb.group=demo" in run_words(run, plan, tmp_path)
    plan = make_plan([*WORDS, *AXES, "wandb=offline", "wandb.group=mine"], "demo", 0, "episode_return_mean", False)
    run = plan.runs_of(plan.grid()[0])[0]
    assert load_settings(run_words(run, plan, tmp_path)).wandb.group == "mine"


def finished(folder: Path, name: str, metrics: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    (folder / name).mkdir()
    (folder / name / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    (folder / name / "summary.json").write_text(json.dumps(summary))


def test_the_table_is_sorted_and_has_the_mean_over_seeds(tmp_path):
    words = ["env=gym:CartPole-v1", "trainer.lr=1e-2,1e-3,1e-4", "seed=0..1", "eval.interval=2"]
    results = {"1e-2": (1.0, 3.0), "1e-3": (10.0, None), "1e-4": (4.0, 4.0)}
    for metric in ("episode_return_mean", "eval/return"):
        plan = make_plan(words, metric.replace("/", "-"), 0, metric, False)
        with open_sweep(plan, tmp_path) as opened:
            for combination in plan.grid():
                for run, value in zip(
                    plan.runs_of(combination), results[combination.values["trainer.lr"]], strict=True
                ):
                    rows = [{"agent_steps": 1, "eval/return": value, "episode_return": value}, {"agent_steps": 2}]
                    finished(opened.path, run.name, rows, {"episode_return_mean": value})
            (opened.path / plan.runs_of(plan.grid()[1])[1].name / "summary.json").unlink()
            rows = table_of(plan, [], opened.folder)
            assert table_columns(plan, rows) == (
                ["trainer.lr", metric, "finished"],
                [["1e-4", "4 +- 0", "2 of 2"], ["1e-2", "2 +- 1.41", "2 of 2"], ["1e-3", "10", "1 of 2"]],
            )
            assert best_words(plan, rows) == ["env=gym:CartPole-v1", "eval.interval=2", "trainer.lr=1e-4"]
            assert "lr=1e-4" in picture_of(plan, rows, opened.path)
    minimized = make_plan(words, "episode_return_mean", 0, "episode_return_mean", True)
    with Folder.open(tmp_path / "episode_return_mean") as folder:
        assert [row.combination.values["trainer.lr"] for row in table_of(minimized, [], folder)] == [
            "1e-2",
            "1e-4",
            "1e-3",
        ]


def test_damaged_and_linked_runs_of_a_sweep_have_no_result(tmp_path):
    plan = make_plan(["env=gym:CartPole-v1", "seed=0..2"], "demo", 0, "episode_return_mean", False)
    runs = plan.runs_of(plan.grid()[0])
    with open_sweep(plan, tmp_path) as opened:
        finished(tmp_path, "other", [{"agent_steps": 1, "episode_return": 9.0}], {"episode_return_mean": 9.0})
        (opened.path / runs[0].name).symlink_to(tmp_path / "other")
        finished(opened.path, runs[1].name, [], {"episode_return_mean": "9"})
        (opened.path / runs[1].name / "metrics.jsonl").write_text("nonsense\n")
        states = [(outcome.state, outcome.value) for outcome in (outcome_of(run, plan, opened.folder) for run in runs)]
        assert states == [("damaged", None), ("finished", None), ("waiting", None)]
        rows = table_of(plan, [], opened.folder)
        assert best_words(plan, rows) is None
        assert "9" not in table_columns(plan, rows)[1][0]
        picture_of(plan, rows, opened.path)


def test_the_mean_of_curves_ends_with_the_shortest():
    from holdfast.runs.curves import Curve

    mean = mean_curve([Curve([10, 20, 30], [1.0, 2.0, 3.0], 30), Curve([20, 25], [4.0, 6.0], 25)])
    assert (list(mean.steps), list(mean.values), mean.last_step) == ([20, 25], [3.0, 4.0], 25)
