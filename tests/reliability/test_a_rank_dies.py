"""A rank that is killed, stopped or fails ends the job in time and by name; a restart gives the run it would have been."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support.runs import CARTPOLE, digest, figures, last_of_each, run

pytestmark = pytest.mark.slow

WORDS = [*CARTPOLE, "trainer.shards=2", "trainer.total_timesteps=1920", "trainer.rank_timeout=60"]


def start(folder: Path, name: str, *words: str, launcher: list[str] | None = None) -> subprocess.Popen:
    """Start a run with two ranks, by trainer.ranks or by `launcher`."""
    given = last_of_each([*WORDS, f"runs_dir={folder}", f"run={name}", *words])
    command = launcher or [sys.executable]
    ranks = [] if launcher else ["trainer.ranks=2"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(
        [*command, "-m", "holdfast", "train", *given, *ranks],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def ranks_of(process: subprocess.Popen, folder: Path, name: str, updates: int = 5) -> list[psutil.Process]:
    """Wait for some updates; return the processes of rank 0 and 1."""
    metrics = folder / name / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < updates:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.02)
    found = {}
    for child in psutil.Process(process.pid).children():
        if "RANK" in (environment := child.environ()):
            found[int(environment["RANK"])] = child
    return [found[0], found[1]]


def wait_for(process: subprocess.Popen, ranks: list[psutil.Process]) -> tuple[int, str]:
    """Wait for the job and all ranks to end; return the exit code and what it printed to stderr."""
    _, err = process.communicate(timeout=300)
    _, alive = psutil.wait_procs(ranks, timeout=10)
    assert not alive
    return process.returncode, err


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    return run(WORDS, tmp_path_factory.mktemp("untouched"), "demo")


def assert_same(path: Path, other: Path) -> None:
    assert digest(path) == digest(other)
    assert figures(path) == figures(other)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_job_and_one_process_finishes_the_run(victim, untouched, tmp_path):
    process = start(tmp_path, "demo")
    ranks = ranks_of(process, tmp_path, "demo")
    ranks[victim].kill()
    code, err = wait_for(process, ranks)
    assert code == 1
    assert f"rank {victim} (" in err
    assert "Traceback" not in err
    assert err.count("all ranks end") == 1
    assert_same(run(WORDS, tmp_path, "demo"), untouched)  # resumed by one process


def test_a_stopped_rank_is_noticed_and_named(tmp_path):
    process = start(tmp_path, "demo", "trainer.total_timesteps=1e6", "trainer.rank_timeout=4")
    ranks = ranks_of(process, tmp_path, "demo")
    ranks[1].suspend()
    code, err = wait_for(process, ranks)
    assert code == 1
    assert "rank 1 (" in err
    assert "trainer.rank_timeout" in err
    assert err.count("all ranks end") == 1


def test_a_signal_saves_and_ends_all_ranks_and_they_resume(untouched, tmp_path):
    process = start(tmp_path, "demo")
    ranks = ranks_of(process, tmp_path, "demo")
    process.send_signal(signal.SIGTERM)
    code, err = wait_for(process, ranks)
    assert code == 143
    assert err.count("Stopped.") == 1
    assert not (tmp_path / "demo" / "lock").exists()
    again = start(tmp_path, "demo")
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert_same(tmp_path / "demo", untouched)


def test_environments_that_fail_on_every_rank_are_reported_once(tmp_path):
    process = start(tmp_path, "demo", "env=gym:support.faulty:Faulty-v0", "env.hide=[]", "env.kwargs.field=reward")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    replay_test, *errors = [line for line in err.splitlines() if " is nan at step" in line]
    assert "replay test" in replay_test
    assert len(errors) == 1
    assert "Traceback" not in err


def test_torchrun_restarts_the_job_and_the_run_is_the_one_it_would_have_been(untouched, tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    process = start(tmp_path, "demo", launcher=torchrun)
    ranks_of(process, tmp_path, "demo")[1].kill()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert_same(tmp_path / "demo", untouched)
