"""Sweeps of tiny runs: in processes of their own, or with runs that are trained in this process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import load_settings
from holdfast.files import Folder
from holdfast.runs.listing import find_runs, read_row
from holdfast.sweeps import sweep as sweep_module
from holdfast.sweeps.plan import Run, make_plan
from holdfast.sweeps.results import table_columns, table_of
from holdfast.sweeps.store import open_sweep
from holdfast.sweeps.sweep import SweepRunner
from holdfast.trainer import train
from support.runs import CARTPOLE, last_of_each

WORDS = last_of_each([word for word in CARTPOLE if not word.startswith("progress")])
AXES = ["trainer.lr=3e-3,1e-4", "seed=0..1"]
WORLD = """
import gymnasium

class Breaks(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, after=10**9):
        self.left = after

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.low, {}

    def step(self, action):
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("the world broke\\nat last")
        self.t += 1
        return self.observation_space.low, float(action), self.t == 5, False, {}

def crashes():
    import os
    os.kill(os.getpid(), 9)
"""


def sweep_process(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "holdfast", "sweep", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_of(sweep: Path) -> dict[str, int]:
    return {path.parent.name: path.read_bytes().count(b"\n") for path in sweep.glob("*/metrics.jsonl")}


def states_of(runs_dir: Path) -> dict[str, str]:
    return {run.name: read_row(run)[0].state for run in find_runs(runs_dir)[0]}


class Trained:
    """Stands in for a process: the run was trained to its end in this process."""

    ended, seconds = True, 1.0

    def __init__(self, run: Run, words: list[str], sweep: Folder):
        self.run = run
        train(load_settings(words))

    def close(self) -> None: ...

    def why_unfinished(self) -> str:
        return ""


def train_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Train runs in this process; return a list, to which the name of each run that starts is appended."""
    started: list[str] = []

    def start(run: Run, words: list[str], sweep: Folder) -> Any:
        started.append(run.name)
        return Trained(run, words, sweep)

    monkeypatch.setattr(sweep_module, "start", start)
    monkeypatch.setattr(sweep_module, "POLL_S", 0.0)
    return started


def run_here(runs_dir: Path, words: list[str], name: str, trials: int = 0, jobs: int = 1) -> tuple[Any, list[Any]]:
    """Run a sweep; return its table, and the values that it has tried."""
    plan = make_plan(words, name, trials, "episode_return_mean", False)
    with open_sweep(plan, runs_dir) as opened:
        SweepRunner(opened, jobs, lambda line: None).run()
        return table_columns(opened.plan, table_of(opened.plan, opened.proposed, opened.folder)), opened.proposed
