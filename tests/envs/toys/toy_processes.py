"""Looking at worker processes, and programs that have some."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from holdfast.envs.workers import WorkerWorld

PARENT = Path(__file__).with_name("toy_parent.py")


def pids(world: WorkerWorld) -> list[int]:
    found = [worker.process.pid for worker in world._workers]
    return [pid for pid in found if pid is not None]


def comes_true(condition: Callable[[], bool], within: float) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(workers: list[int], within: float) -> bool:
    """Whether all processes end in time; those that became zombies of somebody else have ended."""

    def running(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != "zombie"
        except psutil.NoSuchProcess:
            return False

    return comes_true(lambda: not any(running(pid) for pid in workers), within)


def shared_files() -> set[str]:
    folder = Path("/dev/shm")
    return {file.name for file in folder.iterdir()} if folder.exists() else set()


def run_parent(ending: str, *more: str) -> tuple[subprocess.Popen[str], list[int]]:
    parent = subprocess.Popen(
        [sys.executable, str(PARENT), ending, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    return parent, [int(word) for word in parent.stdout.readline().split()]
