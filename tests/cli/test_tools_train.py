"""tools/train.py: the seeds' command, from whatever interpreter `python3` happens to be."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.policies import GRID_AGENTS
from support.commands import Commands

SCRIPT = Path(__file__).parents[2] / "tools" / "train.py"
BARE = [sys.executable, "-S", "-I"]  # an interpreter that has no packages


def run(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd)


@pytest.fixture
def checkout(tmp_path):
    """A copy of the script in a project folder of its own."""
    (tmp_path / "tools").mkdir()
    return Path(shutil.copy(SCRIPT, tmp_path / "tools")).parents[1]


def test_it_can_be_executed():
    assert os.access(SCRIPT, os.X_OK)
    assert SCRIPT.read_text().startswith("#!/usr/bin/env python3\n")


def test_it_takes_the_words_of_holdfast_train(tmp_path):
    done = run([sys.executable, str(SCRIPT), "py_agent=fst"], tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("py_agent=fst: no such agent. Did you mean fast?")
    assert list(tmp_path.iterdir()) == []


def test_it_becomes_the_projects_interpreter(checkout):
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    python.chmod(0o755)
    script = str(checkout / "tools" / "train.py")
    done = run([*BARE, script, "run=a b", "seed=1"], checkout)
    assert (done.returncode, done.stdout) == (0, f"{script}|run=a b|seed=1|")


def test_without_one_it_says_what_to_do(checkout):
    done = run([*BARE, str(checkout / "tools" / "train.py"), "seed=1"], checkout)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "is not installed" in done.stderr
    assert "make train" in done.stderr


@pytest.fixture(scope="module")
def commands():
    with Commands() as warm:
        yield warm


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "family"),
    [("fast", "py_agent"), ("fast", "agent"), *zip(GRID_AGENTS[1:], ["py_agent", "agent"] * 2, strict=True)],
)
def test_the_seeds_loop(name, family, commands, tmp_path):
    """Every agent, two workers: exit code 0, a whole run folder, parity. `fast` in both families by the script, 5,000 steps."""
    steps = 5000 if name == "fast" else 2000
    words = [f"{family}={name}", "run=loop", f"trainer.total_timesteps={steps}", "trainer.num_workers=2", "wandb=off"]
    if name == "fast":
        done = subprocess.run([str(SCRIPT), *words], capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    else:
        done = commands("train", *words, cwd=tmp_path, limit=300)
        assert done.code == 0, done.err
    folder = tmp_path / "runs" / "loop"
    left = {path.name for path in folder.iterdir()}
    assert left == {"config.yaml", "metrics.jsonl", "run-id", "summary.json", "checkpoints"}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["agent_steps"] >= steps
    assert max(row["parity_max_abs_logratio"] for row in rows) <= 1e-5
    assert list((folder / "checkpoints").iterdir())
