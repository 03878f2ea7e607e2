"""Start small training runs, in this process or in new ones, and compare their results."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from holdfast.config import load_settings
from holdfast.rollout import Collector
from holdfast.trainer import train
from holdfast.trainer.signals import Stopped

REPOSITORY = Path(__file__).parents[2]
TINY = [
    "env.num_envs=4",
    "trainer.horizon=8",
    "trainer.batch_size=64",
    "trainer.minibatch_size=32",
    "trainer.total_timesteps=256",
    "trainer.update_epochs=1",
    "trainer.schedule.lr.kind=constant",
    "trainer.checkpoint_interval=1",
    "trainer.keep.last=100",
    "progress=off",
]
SMALL_NET = ["policy.hidden=8", "policy.encoder=[8]", "policy.heads=[8]"]
CARTPOLE = ["env=gym:CartPole-v1", "env.hide=[1]", *TINY, *SMALL_NET]  # four updates


def _load_kills() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kills", REPOSITORY / "proofs" / "kills.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_kills = _load_kills()
# `make kills` and the tests compare runs with the same functions.
digest: Callable[[Path], dict[str, str]] = _kills.digest
figures: Callable[[Path], list[dict[str, Any]]] = _kills.figures


def run(words: list[str], folder: Path, name: str) -> Path:
    return train(load_settings([*last_of_each(words), f"runs_dir={folder}", f"run={name}"])).run


def last_of_each(words: list[str]) -> list[str]:
    """Keep the last word of each key, so that a test can override the lists above."""
    return list({word.partition("=")[0]: word for word in words}.values())


@contextmanager
def stopping(after: int) -> Iterator[None]:
    """Stop runs, as SIGTERM does, at the end of the rollout after `after` updates; that rollout is discarded."""
    collect, calls = Collector.collect, 0

    def collect_and_stop(self: Collector) -> Any:
        nonlocal calls
        calls += 1
        result = collect(self)
        if calls > after:
            raise Stopped(signal.SIGTERM)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Collector, "collect", collect_and_stop)
        yield


def run_stopped(words: list[str], folder: Path, name: str, after: int) -> Path:
    """Start a run and stop it after `after` updates."""
    with stopping(after), pytest.raises(Stopped):
        run(words, folder, name)
    return folder / name


def start(words: list[str], folder: Path, **more: Any) -> subprocess.Popen[str]:
    """Start `holdfast train` in a new process; its runs are in folder/runs."""
    command = [sys.executable, "-m", "holdfast", "train", *last_of_each(words)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


@contextmanager
def running(words: list[str], folder: Path, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """`start`, but kill the process and its children on exit."""
    process = start(words, folder, **more)
    children: list[psutil.Process] = []
    try:
        yield process
    finally:
        if process.poll() is None:
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.communicate()
        for child in children:
            if child.is_running():
                child.kill()


def comes_true(condition: Callable[[], Any], within: float) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_for_updates(process: subprocess.Popen[str], run: Path, updates: int, within: float = 120) -> None:
    """Wait until the run has `updates` lines of metrics; fail with its output if it ends before."""
    metrics = run / "metrics.jsonl"

    def done() -> bool:
        if process.poll() is not None:
            raise AssertionError(f"exit code {process.returncode}: {process.communicate()}")
        return metrics.exists() and metrics.read_bytes().count(b"\n") >= updates

    assert comes_true(done, within), f"fewer than {updates} updates after {within} s"


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the worker processes of a trainer in the order they were started."""
    found = [c for c in psutil.Process(pid).children() if "spawn_main" in " ".join(c.cmdline())]
    return sorted(found, key=lambda child: child.create_time())


def gone(processes: list[psutil.Process], within: float) -> bool:
    """Whether all of them end in time; zombies count as ended."""

    def is_running(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return comes_true(lambda: not any(is_running(p) for p in processes), within)
