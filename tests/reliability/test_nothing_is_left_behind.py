"""Nothing is left behind, however a trainer ends: no process, no shared memory, no temporary file, no lock that holds anybody up."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from holdfast.files import Folder
from holdfast.runs.lock import RunLock
from support.runs import CARTPOLE, comes_true, gone, run, running, wait_for_updates, workers_of

WORDS = [*CARTPOLE, "trainer.num_workers=2", "trainer.keep.last=2", "run=demo"]
ENDLESS = [*WORDS, "trainer.total_timesteps=1e8"]
SHARED = Path("/dev/shm")


def shared_files() -> set[str]:
    return {file.name for file in SHARED.iterdir()} if SHARED.exists() else set()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["SIGKILL", "by itself", "error"])  # SIGTERM has a file of its own
def test_after_the_end_of_a_trainer_with_workers(ending: str, tmp_path: Path):
    temporary, demo = tmp_path / "temporary", tmp_path / "runs" / "demo"
    temporary.mkdir()
    before = shared_files()
    words = WORDS if ending == "by itself" else ENDLESS
    if ending == "error":
        words = [*ENDLESS, "trainer.worker_failures=0"]
    with running(words, tmp_path, env={**os.environ, "TMPDIR": str(temporary)}) as process:
        assert comes_true(lambda: len(workers_of(process.pid)) == 2, 120)
        children = psutil.Process(process.pid).children(recursive=True)
        if ending != "by itself":
            wait_for_updates(process, demo, 2)
            children = psutil.Process(process.pid).children(recursive=True)
            assert len(workers_of(process.pid)) == 2
        if ending == "error":
            workers_of(process.pid)[1].kill()
        elif ending != "by itself":
            process.send_signal(signal.Signals[ending])
        _, errors = process.communicate(timeout=120)
        codes = {"SIGKILL": -9, "by itself": 0, "error": 1}
        assert process.returncode == codes[ending], errors
        assert gone(children, 5)
    assert comes_true(lambda: shared_files() <= before, 5), "other programs may have some for a moment"
    assert list(temporary.iterdir()) == []
    assert (demo / "lock").exists() == (ending == "SIGKILL")
    RunLock.take(Folder.open(demo)).release()
    done = len((demo / "metrics.jsonl").read_bytes().splitlines())
    here = [*(w for w in CARTPOLE if "total_timesteps" not in w), f"trainer.total_timesteps={64 * (done + 1)}"]
    run(here, demo.parent, "demo")
    assert sorted(p.name for p in demo.iterdir()) == [
        "checkpoints",
        "config.yaml",
        "metrics.jsonl",
        "run-id",
        "summary.json",
    ]
    assert all(p.name.isdigit() for p in (demo / "checkpoints").iterdir())
