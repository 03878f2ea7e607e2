"""A full or read-only disk is reported: what is needed and what is there, the previous checkpoint intact, no stump.

A disk that is full is a limit on the size of files here, one that says no is a folder of another user's: both come from the system.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.checkpoint import list_checkpoints, load_checkpoint
from holdfast.runs import read_metrics
from support.runs import CARTPOLE, digest, last_of_each, run, run_stopped

# Goes on in a process of its own, where the disk says no from the given update on until another one.
CONTINUE = """
import json, os, resource, sys
how, first, last, *words = sys.argv[1:]
from holdfast.cli import main
from holdfast.trainer import saver
if how == "permission":
    import torch, gymnasium.envs.classic_control  # while their files can be read
    if os.getuid() == 0:
        os.setgid(65534), os.setuid(65534)
log = saver.Saver.log
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
def log_and_fill(self, metrics):
    log(self, metrics)
    if how == "full":
        full = int(first) <= metrics["update"] < int(last)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["LARGEST"]) if full else soft, hard))
    else:
        said_no = int(first) <= metrics["update"] < int(last)
        os.chmod(self.run.checkpoints, 0o555 if said_no else 0o755)
saver.Saver.log = log_and_fill
main(["train", *words])
"""
WORDS = [*CARTPOLE, "trainer.total_timesteps=384", "policy.hidden=64", "progress=lines"]  # six updates
NEVER_AGAIN = 99


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run that was stopped after two updates, and has a checkpoint of each."""
    return run_stopped(WORDS, tmp_path, "demo", after=2)


def go_on(demo: Path, how: str, first: int, last: int, *words: str) -> subprocess.CompletedProcess[str]:
    if how == "permission" and os.getuid() == 0:
        for path in (demo, *demo.rglob("*")):
            os.chown(path, 65534, 65534)
        for folder in demo.parents:  # made for root alone by pytest; the other user has to pass
            if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o011)
    words = tuple(last_of_each([*WORDS, f"runs_dir={demo.parent}", "run=demo", *words]))
    # more than any metric or fact needs, less than the weights
    environment = {**os.environ, "LARGEST": "20000", "HOME": str(demo.parent)}
    command = [sys.executable, "-c", CONTINUE, how, str(first), str(last), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def check_whole(demo: Path, names: list[str]) -> None:
    """These checkpoints, each of them good, and nothing else beside them."""
    assert sorted(p.name for p in (demo / "checkpoints").iterdir()) == names
    for path in list_checkpoints(demo / "checkpoints"):
        load_checkpoint(path)


REASONS = {"full": r"file too large (needs ", "permission": "permission denied"}


@pytest.mark.slow
@pytest.mark.parametrize("how", REASONS)
def test_a_run_goes_on_says_so_each_time_and_saves_when_it_can(how: str, stopped: Path, tmp_path: Path):
    """The disk says no at updates 3 and 4, and is well again at 5."""
    done = go_on(stopped, how, 3, 5)
    assert done.returncode == 0, done.stderr
    told = [line for line in (done.stdout + done.stderr).splitlines() if "NOT SAVED" in line]
    assert len(told) == 2, done.stdout + done.stderr
    for line, name in zip(told, ("00000003", "00000004"), strict=True):
        assert f"{stopped / 'checkpoints' / name}: cannot be written: {REASONS[how]}" in line
        assert "Training continues; to stop it instead, use trainer.on_disk_error=stop." in line
        if how == "full":
            needs, free = line.split("needs ")[1].split(")")[0].split("; ")
            assert float(needs.removesuffix(" MB")) >= 0.1
            assert float(free.removesuffix(" MB are free")) > 1.0  # of the real disk, which is not full
    check_whole(stopped, ["00000001", "00000002", "00000005", "00000006"])
    assert digest(stopped) == digest(run([*WORDS, "progress=off"], tmp_path, "untouched"))


@pytest.mark.slow
@pytest.mark.parametrize("how", REASONS)
def test_a_run_stops_if_that_was_asked_for_and_can_go_on(how: str, stopped: Path, tmp_path: Path):
    before = shutil.copytree(stopped / "checkpoints", tmp_path / "before")
    done = go_on(stopped, how, 3, NEVER_AGAIN, "trainer.on_disk_error=stop")
    assert done.returncode == 1
    assert f"{stopped / 'checkpoints' / '00000003'}: cannot be written: {REASONS[how]}" in done.stderr
    assert "Traceback" not in done.stderr
    check_whole(stopped, ["00000001", "00000002"])
    for file in before.rglob("*.*"):
        assert (stopped / "checkpoints" / file.relative_to(before)).read_bytes() == file.read_bytes()
    assert len(read_metrics(stopped)) == 3
    os.chmod(stopped / "checkpoints", 0o755)
    assert digest(run(WORDS, tmp_path, "demo")) == digest(run(WORDS, tmp_path, "untouched"))


@pytest.mark.slow
def test_a_disk_that_is_full_to_the_end_ends_the_run_with_an_error(stopped: Path):
    """The last checkpoint is not one to do without; no summary says that all is well."""
    done = go_on(stopped, "full", 5, NEVER_AGAIN)
    assert done.returncode == 1
    assert "NOT SAVED" in done.stdout + done.stderr
    assert "00000006: cannot be written: file too large (needs " in done.stderr.splitlines()[-1]
    check_whole(stopped, ["00000001", "00000002", "00000003", "00000004"])
    assert not (stopped / "summary.json").exists()
    assert json.loads((stopped / "metrics.jsonl").read_text().splitlines()[-1])["update"] == 6
