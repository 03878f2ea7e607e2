"""A sweep is not lost: killed, it ends with the table it would have had; stopped, its runs are saved; one that fails stops no other."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace

import psutil
import pytest

from holdfast.files import Folder
from holdfast.sweeps import processes
from holdfast.sweeps.plan import make_plan
from holdfast.sweeps.results import table_columns, table_of
from holdfast.sweeps.store import open_sweep
from holdfast.sweeps.sweep import SweepRunner
from support.runs import comes_true, gone, last_of_each
from support.sweeps import AXES, WORDS, WORLD, lines_of, run_here, states_of, sweep_process, train_here


@pytest.mark.slow
def test_a_sweep_that_is_killed_has_the_table_it_would_have_had(tmp_path, monkeypatch):
    words = last_of_each([*WORDS, "trainer.total_timesteps=1920", "trainer.checkpoint_interval=7", *AXES])
    with monkeypatch.context() as patch:
        train_here(patch)
        expected, _ = run_here(tmp_path / "reference", words, "demo")
    sweep = tmp_path / "runs" / "demo"
    process = sweep_process(tmp_path, *words, "--name", "demo", "--jobs", "2")
    try:
        assert comes_true(lambda: sum(n > 8 for n in lines_of(sweep).values()) == 2 or process.poll() is not None, 120)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 2, process.communicate()
        process.kill()
        assert gone(children, 10), "runs of a killed sweep save and end"
    finally:
        process.kill()
        process.communicate()
    assert states_of(tmp_path / "runs") == {f"demo/00{i}-lr_3e-3-seed_{i - 1}": "stopped" for i in (1, 2)}
    assert all((sweep / name / "checkpoints").exists() for name in lines_of(sweep))
    process = sweep_process(tmp_path, *words, "--name", "demo", "--jobs", "2", "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "resumed 001" in err
    assert "started 003" in err
    assert json.loads(out)["combinations"][0]["mean"] is not None
    plan = make_plan(words, "demo", 0, "episode_return_mean", False)
    with Folder.open(sweep) as folder:
        assert table_columns(plan, table_of(plan, [], folder)) == expected
    left = sorted(path.name for path in sweep.iterdir() if not path.name[0].isdigit())
    assert left == ["curves.svg", "logs", "sweep.json"]
    configs = [(sweep / name / "config.yaml").read_text() for name in lines_of(sweep)]
    assert all("threads: 1\n" in config for config in configs), "several at a time have one thread each"


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other(tmp_path):
    (tmp_path / "mine.py").write_text(WORLD)
    words = [word for word in WORDS if not word.startswith("env")]
    words += ["env=./mine.py:Breaks", "env.num_envs=4", "env.kwargs.after=40,1000000"]
    with open_sweep(replace(make_plan(words, "demo", 0, "episodes", False), one_thread=True), tmp_path / "runs"):
        pass  # an existing sweep is not checked again, which saves time here
    process = sweep_process(tmp_path, *words, "--jobs", "2", "--name", "demo")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "1 of 2 runs did not finish: 001-after_40." in err
    (failed,) = [line for line in out.splitlines() if "failed 001-after_40" in line]
    assert "the world broke at last" in failed
    assert [line.split()[0] for line in out.splitlines() if " of 1" in line] == ["1000000", "40"]
    assert "Best: holdfast train " in out
    assert sorted(states_of(tmp_path / "runs").values()) == ["failed", "finished"]


CHILD = """#!/bin/sh
echo "$@" >> {told}
trap 'echo TERM >> {told}; exit 143' TERM
trap 'echo INT >> {told}; exit 130' INT
while true; do sleep 0.02; done
"""


def test_a_signal_stops_the_runs_once_and_waits_for_them(tmp_path, monkeypatch):
    """Ctrl-C in a terminal reaches the whole process group: the runs are in others, because a second signal kills."""
    told, child = tmp_path / "told", tmp_path / "child"
    child.write_text(CHILD.format(told=told))
    child.chmod(0o755)
    monkeypatch.setattr(processes.sys, "executable", str(child))
    plan = make_plan([*WORDS, *AXES], "demo", 0, "episode_return_mean", False)
    began: list[psutil.Process] = []
    groups: set[int] = set()

    def stop_once_both_run() -> None:
        comes_true(lambda: told.exists() and told.read_text().count(" train ") == 2, 20)
        began.extend(process for process in psutil.Process().children() if str(child) in process.cmdline())
        groups.update(os.getpgid(process.pid) for process in began)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop_once_both_run).start()
    with open_sweep(plan, tmp_path / "runs") as opened:
        with pytest.raises(KeyboardInterrupt):
            SweepRunner(opened, 2, lambda line: None).run()
        assert gone(began, 0), "it waited for them"
    assert len(groups - {os.getpgid(0)}) == 2
    words = told.read_text().split("\n")
    assert words.count("TERM") == 2
    assert words.count("INT") == 0
    assert {word for word in " ".join(words).split() if word.startswith("seed=")} == {"seed=0", "seed=1"}
