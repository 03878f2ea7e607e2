"""Small runs of the trainer, in this process and as programs of their own, and what they left as digests."""

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
    "trainer.checkpoint_interval=1",
    "trainer.keep.last=100",
    "progress=off",
]
SMALL_NET = ["policy.hidden=8", "policy.encoder=[8]", "policy.heads=[8]"]
CARTPOLE = ["env=gym:CartPole-v1", "env.hide=[1]", *TINY, *SMALL_NET]  # four updates


def _load_kills() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kills", REPOSITORY / "benchmarks" / "kills.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_kills = _load_kills()
# One measure of sameness, for `make kills` and for tests.
digest: Callable[[Path], dict[str, str]] = _kills.digest
figures: Callable[[Path], list[dict[str, Any]]] = _kills.figures


def run(words: list[str], folder: Path, name: str) -> Path:
    return train(load_settings([*last_of_each(words), f"runs_dir={folder}", f"run={name}"])).run


def last_of_each(words: list[str]) -> list[str]:
    """Of words with the same key the last, so that a test may change a word of those above."""
    return list({word.partition("=")[0]: word for word in words}.values())


@contextmanager
def stopping(after: int) -> Iterator[None]:
    """Runs stop, as by SIGTERM, when they have lived the rollout that follows so many updates: it is thrown away."""
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
    """A run that was stopped after so many updates of one process."""
    with stopping(after), pytest.raises(Stopped):
        run(words, folder, name)
    return folder / name


def start(words: list[str], folder: Path, **more: Any) -> subprocess.Popen[str]:
    """`holdfast train` in a process of its own, with folder/runs for its runs."""
    command = [sys.executable, "-m", "holdfast", "train", *last_of_each(words)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


@contextmanager
def running(words: list[str], folder: Path, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """`start`, and whatever happens it and its children are gone in the end."""
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
    """Until the run has so many lines of metrics; its own words if it ends before."""
    metrics = run / "metrics.jsonl"

    def done() -> bool:
        if process.poll() is not None:
            raise AssertionError(f"it ended with {process.returncode}: {process.communicate()}")
        return metrics.exists() and metrics.read_bytes().count(b"\n") >= updates

    assert comes_true(done, within), "no update in time"


def workers_of(pid: int) -> list[psutil.Process]:
    """The worker processes of a trainer, in the order in which they were started."""
    found = [c for c in psutil.Process(pid).children() if "spawn_main" in " ".join(c.cmdline())]
    return sorted(found, key=lambda child: child.create_time())


def gone(processes: list[psutil.Process], within: float) -> bool:
    """Whether all of them end in time; those that are zombies of somebody else have ended."""

    def is_running(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return comes_true(lambda: not any(is_running(p) for p in processes), within)
