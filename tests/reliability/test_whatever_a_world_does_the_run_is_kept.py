"""Whatever a world does to the process, the run is kept: it ends in its folder, with its files whole, as if the world had behaved."""

from __future__ import annotations

import os
import re
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.config import load_settings
from holdfast.custom_code import exits_reported
from holdfast.envs import closing, make_world, worker_handle
from holdfast.envs.workers import WorkerWorld
from holdfast.errors import HoldfastError
from holdfast.runs import read_metrics
from holdfast.trainer import train
from holdfast.trainer.signals import Stopped
from support.commands import Commands, holdfast_process
from support.runs import CARTPOLE, REPOSITORY, SMALL_NET, TINY, digest, last_of_each

ROWDY = ["env=gym:support.rowdy:Rowdy-v0", *TINY, *SMALL_NET]


def rowdy(**deeds: str) -> list[str]:
    return [*ROWDY, *(f"env.kwargs.{when}={deed}" for when, deed in deeds.items())]


def results(run: Path) -> dict[str, str]:
    """Everything that a run computed; the states of the global random generators belong to the world."""
    return {part: found for part, found in digest(run).items() if part != "rng"}


def assert_whole(run: Path, umask: int = 0o022) -> None:
    """All four updates are in the folder, with the modes that the umask allows, and nothing else."""
    assert sorted(path.name for path in run.iterdir()) == [
        "checkpoints",
        "config.yaml",
        "metrics.jsonl",
        "run-id",
        "summary.json",
    ]
    assert [load_checkpoint(path).facts["update"] for path in list_checkpoints(run / "checkpoints")] == [1, 2, 3, 4]
    for path in (run, *run.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o777 if path.is_dir() else 0o666) & ~umask, path


@pytest.fixture(scope="module")
def behaved(tmp_path_factory) -> dict[str, str]:
    """The results of a run whose world does nothing unusual."""
    runs = tmp_path_factory.mktemp("behaved")
    return results(train(load_settings([*ROWDY, "run=behaved", f"runs_dir={runs}"])).run)


@pytest.fixture(autouse=True)
def undone(tmp_path, monkeypatch):
    """Start in an empty folder, with a common umask, and with no world that is known to fail in close()."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(closing, "_failed_before", {})
    umask = os.umask(0o022)
    yield
    os.umask(umask)


@pytest.mark.parametrize("when", ["init", "reset", "step", "close"])
@pytest.mark.parametrize("deed", ["change_folder", "change_umask", "change_seeds"])
def test_a_changed_process(when, deed, behaved, tmp_path):
    result = train(load_settings([*rowdy(**{when: deed}), "run=demo"]))
    assert result.run == tmp_path / "runs" / "demo"
    assert_whole(result.run)
    assert results(result.run) == behaved
    assert "runs_dir: runs\n" in (result.run / "config.yaml").read_text()
    assert Path.cwd() == tmp_path
    assert os.umask(0o022) == 0o022


def test_files_are_writable_for_the_group_if_the_umask_allows_it(tmp_path):
    os.umask(0o002)
    train(load_settings([*rowdy(init="change_umask", step="change_umask"), "run=demo"]))
    assert_whole(tmp_path / "runs" / "demo", umask=0o002)
    assert os.umask(0o022) == 0o002


@pytest.mark.parametrize(
    ("deed", "what"), [("fail", "raised ValueError: rowdy in close()"), ("sleep", "has not returned")]
)
def test_a_close_that_fails(deed, what, behaved, caplog, monkeypatch, tmp_path):
    monkeypatch.setattr(closing, "CLOSE_SECONDS", 0.2)
    assert results(train(load_settings([*rowdy(close=deed), "run=demo"])).run) == behaved
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"env=gym:support.rowdy:Rowdy-v0: environment 0 {what}")
    assert_whole(tmp_path / "runs" / "demo")


@pytest.mark.slow
def test_a_close_that_fails_in_a_worker_is_reported(caplog):
    world = make_world(load_settings(rowdy(close="fail")).env, num_workers=2)
    closing._failed_before.clear()  # one environment was closed in this process, to describe the world
    caplog.clear()
    world.close()
    [warning] = caplog.messages
    assert "raised ValueError: rowdy in close()" in warning


@pytest.mark.slow
def test_workers_that_are_still_being_built_are_not_blamed_on_close(caplog, monkeypatch):
    def interrupt(world, seconds):
        os.kill(world._workers[0].process.pid, signal.SIGSTOP)  # so that it is being built for as long as we like
        raise KeyboardInterrupt

    monkeypatch.setattr(WorkerWorld, "_gather", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_world(load_settings(rowdy()).env, num_workers=1)
    assert caplog.messages == []


def holdfast(redirections: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `holdfast WORDS` in a shell, which can redirect streams, to a PIPE that nobody reads, too. Capture the others."""
    paths = os.pathsep.join([str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")])
    unread, pipe = os.pipe()
    os.close(unread)
    shell = f'exec "$0" -m holdfast "$@" {redirections.replace("PIPE", str(pipe))}'
    env = {**os.environ, "PYTHONPATH": paths}
    try:
        return subprocess.run(
            ["bash", "-c", shell, sys.executable, *words],
            env=env,
            pass_fds=[pipe],
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        os.close(pipe)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("streams", "words"),
    [
        ("<&- >&- 2>&-", ["env.kwargs.close=sleep"]),
        (">/dev/full 2>/dev/full", ["env.kwargs.close=sleep", "trainer.num_workers=1"]),
        (">&PIPE 2>&1", ["progress=lines"]),
    ],
)
def test_no_output_is_needed_and_no_thread_is_waited_for(streams, words, behaved, tmp_path):
    deeds = rowdy(reset="leave_a_thread", step="write_a_lot+change_folder")
    done = holdfast(streams, "train", *last_of_each([*deeds, "run=demo", *words]))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert_whole(tmp_path / "runs" / "demo")
    assert results(tmp_path / "runs" / "demo") == behaved


@pytest.mark.slow
@pytest.mark.parametrize(
    ("streams", "words", "code"),
    [
        ("<&- >&- 2>&-", ["settings"], 0),
        (">&PIPE", ["settings"], 141),
        (">/dev/full", ["settings", "trainer"], 2),
        (">/dev/full", ["--help"], 2),
        (">/dev/full", ["audit", "--checks"], 2),
        (">&- 2>/dev/full", ["settings", "nonsense"], 2),
        ("2>&-", ["evaluate", "nonsense"], 2),
        (">/dev/full 2>&-", ["audit", "nonsense"], 2),
    ],
)
def test_exit_codes_without_output(streams, words, code):
    done = holdfast(streams, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert ("No space left on device" in done.stderr) == ("2>" not in streams and "full" in streams)


@pytest.fixture(scope="module")
def commands():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(REPOSITORY / "tests"), prepend=os.pathsep)
        with Commands() as commands:
            yield commands


@pytest.mark.parametrize(
    ("when", "deed"), [("step", "fail"), ("step", "exit"), ("step", "go_on"), ("reset", "go_on"), ("init", "go_on")]
)
def test_a_child_that_a_world_forks_is_no_second_trainer(when, deed, behaved, commands, tmp_path):
    done = commands("train", *rowdy(**{when: f"fork_and_{deed}"}), "run=demo", cwd=tmp_path, limit=100)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("Next, ") == 1
    assert_whole(tmp_path / "runs" / "demo")
    assert results(tmp_path / "runs" / "demo") == behaved


@pytest.mark.parametrize(
    ("deed", "named"),
    [
        ("raise_odd", "Odd: odd"),
        ("raise_generator_exit", "GeneratorExit"),
        ("raise_mute", "Mute"),
        ("raise_many_lines", "line 1"),
    ],
)
def test_whatever_a_world_raises_is_a_few_lines_that_name_it(deed, named, commands, tmp_path):
    for when in ("reset", "step"):
        done = commands("train", *rowdy(**{when: deed}), f"run={when}", cwd=tmp_path)
        assert done.code == 1
        assert "gym:support.rowdy:Rowdy-v0: environment 0" in done.err
        assert named in done.err
        assert f"in {deed}, rowdy.py line" in done.err
        assert len(done.lines) < 12


@pytest.mark.parametrize("deed", ["close_files", "allow_no_files", "use_device_meta"])
def test_a_world_that_breaks_the_process_is_named(deed, commands, tmp_path):
    done = commands("train", *rowdy(step=deed), "run=demo", cwd=tmp_path)
    assert done.code not in (0, -9)
    assert re.search("(?<!env=)gym:support.rowdy:Rowdy-v0", done.err)
    assert deed != "close_files" or "Traceback" not in done.err
    assert list_checkpoints(tmp_path / "runs" / "demo" / "checkpoints")


def test_a_world_that_replaces_the_streams(behaved, commands, tmp_path):
    done = commands("train", *rowdy(step="replace_streams"), "run=demo", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "Next, " in done.out
    assert results(tmp_path / "runs" / "demo") == behaved


EXITS = """
import os, sys
from holdfast.policies.plain.box import BoxPolicy

class Exits(BoxPolicy):
    calls = 0

    def act(self, inputs, state):
        type(self).calls += 1
        if type(self).calls > 40:  # in the third rollout
            EXIT
        return super().act(inputs, state)
"""


@pytest.mark.parametrize(
    ("exit", "error", "message"),
    [
        ("os._exit(3)", HoldfastError, r"called os\._exit\(3\) at mine\.py:11"),
        ("sys.exit(0)", HoldfastError, r"called sys\.exit\(0\) at mine\.py:11"),
        ("raise ValueError('mine')", ValueError, "mine"),
    ],
)
def test_a_policy_that_exits_or_raises_is_reported_and_the_run_is_saved(exit, error, message, caplog, tmp_path):
    (tmp_path / "mine.py").write_text(EXITS.replace("EXIT", exit))
    words = [*CARTPOLE, "py_agent=./mine.py:Exits", "run=demo", "audit=off"]
    words = [word for word in words if not word.startswith(("policy.encoder", "policy.heads"))]
    with pytest.raises(error, match=message):
        train(load_settings(words))
    [saved] = list_checkpoints(tmp_path / "runs" / "demo" / "checkpoints")[-1:]
    assert load_checkpoint(saved).facts["update"] == 2
    assert "saved up to update 2" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_arrives_in_a_destructor_stops_the_run(tmp_path):
    """64 steps per update, and the replay test has played some before."""
    with pytest.raises(Stopped):
        train(load_settings([*rowdy(step="stop_in_a_destructor"), "run=demo"]))
    assert (
        len(list_checkpoints(tmp_path / "runs" / "demo" / "checkpoints"))
        == len(read_metrics(tmp_path / "runs" / "demo"))
        < 4
    )


@pytest.mark.slow
def test_shared_memory_that_cannot_be_created(tmp_path):
    """A limit on file sizes fails in the same way as a full or read-only /dev/shm: with an OSError.

    In a fresh process, because Python reuses shared memory that it has freed.
    """
    process = holdfast_process(
        "train",
        *CARTPOLE,
        "trainer.num_workers=2",
        "run=demo",
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY)),
    )
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    assert re.search(r"env=gym:.*trainer.num_workers=2: .* MB of shared memory", err)
    assert "File too large" in err
    assert "Use trainer.num_workers=0" in err


@pytest.mark.slow
def test_a_worker_without_memory_is_said_to_be_so(monkeypatch):
    told: list[str] = []
    settings = load_settings(last_of_each([*rowdy(step="use_up_memory"), "env.num_envs=1"])).env
    with make_world(settings, 1, worker_failures=1, on_failure=told.append) as world:
        world.reset(seed=0)
        world.step(np.zeros(1, np.int64))  # the worker fails and is replaced
        assert "environment 0 (slot 0) raised MemoryError" in told[0]
        with pytest.raises(HoldfastError, match="raised MemoryError in step") as stopped:
            world.step(np.zeros(1, np.int64))
    assert "There is no memory left: use fewer environments" in str(stopped.value)
    monkeypatch.setattr(worker_handle, "LITTLE_MEMORY", 2**60)
    with make_world(
        load_settings(last_of_each([*rowdy(step="sleep"), "env.num_envs=1"])).env,
        1,
        worker_timeout=0.5,
        worker_failures=0,
    ) as world:
        world.reset(seed=0)
        with pytest.raises(HoldfastError, match=r"has not answered for 0.5 s \(out of memory: only \d+ MB are free\)"):
            world.step(np.zeros(1, np.int64))


def test_children_and_threads_may_exit():
    """Only the process of the run, and only in a thread where an exception stops it, is kept from ending."""
    with exits_reported():
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    code = "import os, threading, time\nfrom holdfast.custom_code import exits_reported\n"
    code += "with exits_reported():\n    threading.Thread(target=os._exit, args=(7,)).start()\n    time.sleep(60)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 7
