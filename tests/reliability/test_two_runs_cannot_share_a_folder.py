"""Two runs cannot share a folder: the second is refused with the first's process id; a killed run's lock holds nobody up."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.runs import read_metrics
from support.runs import CARTPOLE, last_of_each, running, wait_for_updates

LONG = [*CARTPOLE, "trainer.total_timesteps=1e8", "trainer.keep.last=2", "run=demo"]
# The seconds of a processor that the command takes once Python and torch are loaded: those are ours, on a busy machine too.
TIMED = """
import sys, time
import holdfast.trainer.loop
from holdfast.cli import main
began = time.process_time()
try:
    main(sys.argv[1:])
finally:
    print(time.process_time() - began)
"""


@pytest.mark.slow
def test_the_second_is_refused_and_after_a_kill_the_next_goes_on(tmp_path: Path):
    demo = tmp_path / "runs" / "demo"
    with running(LONG, tmp_path) as first:
        wait_for_updates(first, demo, 2)
        command = [sys.executable, "-c", TIMED, "train", *last_of_each(LONG)]
        second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        print(f"refused in {float(second.stdout):.3f} s")
        assert second.returncode == 2, second.stderr
        assert second.stderr == (
            f"run=demo: runs/demo is in use by process {first.pid}.\nWait for that process, stop it, or choose another run=NAME.\n"
        )
        assert float(second.stdout) < 2
        assert first.poll() is None
        wait_for_updates(first, demo, len(read_metrics(demo)) + 2)  # it goes on undisturbed
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert (demo / "lock").read_text() == f"{first.pid}\n"
    done = len(read_metrics(demo))
    words = [*LONG, f"trainer.total_timesteps={64 * (done + 2)}"]
    with running(words, tmp_path) as third:
        _, errors = third.communicate(timeout=120)
        assert third.returncode == 0, errors
    assert "run=demo: resuming after" in errors
    assert len(read_metrics(demo)) == done + 2
    assert not (demo / "lock").exists()
