"""SIGTERM, Ctrl-C and a lost terminal save: a valid checkpoint of the last finished update, exit code 143, 130 or 129.

A second signal leaves at once.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import psutil
import pytest

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.runs import read_metrics
from holdfast.trainer.signals import Stopped, StopSignals
from support.runs import CARTPOLE, comes_true, digest, gone, last_of_each, run, running, wait_for_updates, workers_of

LONG = [
    *CARTPOLE,
    *("trainer.batch_size=128", "trainer.minibatch_size=64", "trainer.update_epochs=2"),
    *("trainer.checkpoint_interval=0", "trainer.total_timesteps=1e8", "run=demo"),
]


def shorter(updates: int) -> str:
    return f"trainer.total_timesteps={128 * updates}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "workers"),
    [(signal.SIGTERM, 143, 0), (signal.SIGINT, 130, 0), (signal.SIGTERM, 143, 2)],
)
def test_the_last_finished_update_is_saved(number: signal.Signals, code: int, workers: int, tmp_path: Path):
    """No interval was due. Continued, the run is the one that nobody touched."""
    words = [*LONG, f"trainer.num_workers={workers}"]
    with running(words, tmp_path) as process:
        wait_for_updates(process, tmp_path / "runs" / "demo", 3)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(workers_of(process.pid)) == workers
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == code, errors
        assert gone(children, 5)
    demo = tmp_path / "runs" / "demo"
    updates = len(read_metrics(demo))
    [path] = list_checkpoints(demo / "checkpoints")
    assert load_checkpoint(path).facts["update"] == updates >= 3
    assert f"The run is saved up to update {updates}; to resume it: holdfast train run=demo" in errors
    assert "Traceback" not in errors
    assert sorted(p.name for p in demo.iterdir()) == ["checkpoints", "config.yaml", "metrics.jsonl", "run-id"]
    here = [*(w for w in LONG if not w.startswith("run=")), shorter(updates + 2)]
    assert digest(run(here, demo.parent, "demo")) == digest(run(here, tmp_path, "untouched"))


@pytest.mark.slow
def test_a_lost_terminal_saves(tmp_path: Path):
    """Closing a terminal sends SIGHUP to the processes in it, workers too, and makes their output fail."""
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    words = [*LONG, "progress=lines", "trainer.num_workers=1"]
    command = [sys.executable, "-m", "holdfast", "train", *last_of_each(words)]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, text=True, preexec_fn=take_terminal
    )
    try:
        os.close(theirs)
        wait_for_updates(process, tmp_path / "runs" / "demo", 3)
        os.close(ours)
        assert process.wait(60) == 129
    finally:
        process.kill()
    demo = tmp_path / "runs" / "demo"
    [path] = list_checkpoints(demo / "checkpoints")
    assert load_checkpoint(path).facts["update"] == len(read_metrics(demo)) >= 3
    assert sorted(p.name for p in demo.iterdir()) == ["checkpoints", "config.yaml", "metrics.jsonl", "run-id"]


def test_nohup_stays_in_force():
    """Who starts a run with SIGHUP ignored does not want it to stop when the terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals().listening():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with pytest.raises(Stopped) as stopped, StopSignals().listening():
            signal.raise_signal(signal.SIGHUP)
        assert stopped.value.code == 129
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_a_second_signal_leaves_at_once(tmp_path: Path):
    """The first comes while a checkpoint is being written to a disk that is never done; workers leave with the trainer."""
    slow_disk = tmp_path / "slow" / "sitecustomize.py"
    slow_disk.parent.mkdir()
    slow_disk.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "if 'train' in sys.argv:\n"
        "    from holdfast.files import Folder\n"
        "    write = Folder.write\n"
        "    def slow(folder, name, data):\n"
        "        if 'checkpoints' not in folder.path.parts: return write(folder, name, data)\n"
        "        Path('writing').touch(), time.sleep(3600)\n"
        "    Folder.write = slow\n"
    )
    words = [*LONG, "trainer.checkpoint_interval=2", "trainer.num_workers=2"]
    paths = os.pathsep.join([str(slow_disk.parent), os.environ.get("PYTHONPATH", "")])
    with running(words, tmp_path, env={**os.environ, "PYTHONPATH": paths}) as process:
        wait_for_updates(process, tmp_path / "runs" / "demo", 2)
        assert comes_true((tmp_path / "writing").exists, 60)
        children = workers_of(process.pid)
        assert len(children) == 2
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)  # it is in the middle of a write, and means to finish it
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)  # the write would take an hour
        assert process.returncode == 143
        assert gone(children, 5)
    assert list_checkpoints(tmp_path / "runs" / "demo" / "checkpoints") == []


@pytest.mark.slow
def test_a_signal_before_the_first_update_leaves_nothing(tmp_path: Path):
    words = [*LONG, "trainer.batch_size=1048576", "trainer.minibatch_size=1048576", "trainer.num_workers=1"]
    config = tmp_path / "runs" / "demo" / "config.yaml"
    with running(words, tmp_path) as process:
        assert comes_true(config.exists, 120)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert gone(children, 5)
    # Its settings are written shortly before the first step.
    assert errors in ("Stopped; nothing was saved.\n", "Stopped before training began.\n")
    assert not config.parent.exists()
