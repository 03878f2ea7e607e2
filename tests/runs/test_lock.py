"""Two runs cannot share a folder; a process that is gone has no lock."""

import os
import signal
import subprocess
import sys

import pytest

from holdfast.errors import SettingsError
from holdfast.files import Folder
from holdfast.runs.lock import LOCK, RunLock, refuse_if_in_use

HOLD = """
import sys, time
from pathlib import Path
from holdfast.files import Folder
from holdfast.runs.lock import RunLock
lock = RunLock.take(Folder.open(Path(sys.argv[1])))
print("held", flush=True)
time.sleep(60)
"""


def holder(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


def test_the_second_is_refused_with_the_pid_of_the_first(tmp_path):
    process = holder(tmp_path)
    try:
        for refuse in (refuse_if_in_use, lambda path: RunLock.take(Folder.open(path))):
            with pytest.raises(SettingsError, match=f"in use by process {process.pid}"):
                refuse(tmp_path)
    finally:
        process.kill()
        process.wait()


def test_the_lock_of_a_killed_process_is_recovered(tmp_path):
    process = holder(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (tmp_path / LOCK).exists()
    lock = RunLock.take(Folder.open(tmp_path))
    assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"
    lock.release()
    assert not (tmp_path / LOCK).exists()


def test_a_lock_is_not_inherited(tmp_path):
    """A worker that outlives its trainer for a moment must not keep the run from going on."""
    lock = RunLock.take(Folder.open(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        lock._file.close()  # what the end of this process would do
        RunLock.take(Folder.open(tmp_path)).release()
    finally:
        process.kill()
        process.wait()


def test_looking_leaves_nothing_behind(tmp_path):
    refuse_if_in_use(tmp_path)
    refuse_if_in_use(tmp_path / "nowhere")
    (tmp_path / LOCK).write_text("999999\n")  # of a process that was killed
    refuse_if_in_use(tmp_path)
    assert list(tmp_path.iterdir()) == []
