import signal
import subprocess
import sys

import pytest

from holdfast.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint

# Child number n is killed at the n-th moment of its second save: before every call that Python reports as
# touching a file, before and after every fsync, and in the middle of every file.
WRITER = """
import os, signal, sys
from pathlib import Path
import torch
from holdfast.checkpoint import save_checkpoint
from holdfast.files import Folder

torch.set_num_threads(1)
tensors = {"policy": {"w": torch.ones(1000)}}
moments_left = 0
fsync, write = os.fsync, Folder.write

def moment(event="", args=()):
    global moments_left
    if event in ("", "open", "os.rename", "os.mkdir", "os.remove", "os.rmdir"):
        moments_left -= 1
        if moments_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

def fsync_between_moments(handle):
    moment()
    fsync(handle)
    moment()

def write_with_a_moment_halfway(folder, name, data):
    write(folder, name, data[: len(data) // 2])
    moment()
    folder.remove(name)
    write(folder, name, data)

os.fsync, Folder.write = fsync_between_moments, write_with_a_moment_halfway
sys.addaudithook(moment)

for number in range(1, 100):
    folder = Path(sys.argv[1]) / str(number)
    save_checkpoint(folder, "1", tensors, {"number": 1})
    child = os.fork()
    if child == 0:
        moments_left = number
        save_checkpoint(folder, "2", tensors, {"number": 2})
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(number, code)
    if code != -signal.SIGKILL:
        break
"""


@pytest.mark.slow
def test_killed_at_any_moment_a_checkpoint_is_whole_or_absent(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path)], capture_output=True, text=True, timeout=300, check=True
    )
    outcomes = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    appeared = []
    for number, code in outcomes:
        folder = tmp_path / str(number)
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        assert found == list_checkpoints(folder)
        assert found[0].name == "1"
        for path in found:
            assert load_checkpoint(path).facts == {"number": int(path.name)}
        appeared.append(len(found) == 2)
        assert code in (0, -signal.SIGKILL)
        save_checkpoint(folder, "3", {}, {})
        assert not list(folder.glob(".*"))
    assert outcomes[-1][1] == 0
    assert appeared[-1]
    assert sum(appeared) < 6 < 15 < len(appeared)  # nearly every moment comes before the rename
